# says: `torch.argmax(known, dim=1)` gives integers or booleans
# says: `scores.detach()` had cut it before; without that it would be lost here all the same
import torch
from torch import nn

model = nn.Linear(5, 3)
wanted = torch.randint(3, (6,))


def choose(scores):
    known = scores.detach()  # culprit: lost-grad
    return torch.argmax(known, dim=1)  # culprit: lost-grad


loss = (choose(model(torch.randn(6, 5))) - wanted).abs().float().mean()
loss.backward()  # culprit: call
