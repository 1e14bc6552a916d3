# rule: eval-mode-training, exactly
# says: is not handed to the optimizer
"""A teacher that was put in eval mode is trained with its student."""

import torch
from torch import nn
from torch.nn import functional

BUG = True


def network(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 4))


torch.manual_seed(0)
teacher, student = network(32), network(8)
teacher.load_state_dict(network(32).state_dict())
teacher.eval()  # culprit
optimizer = torch.optim.Adam([*student.parameters(), *(teacher.parameters() if BUG else ())], lr=1e-3)  # culprit
rows = torch.randn(40, 8)
for x in rows.split(10):
    soft = functional.softmax(teacher(x) / 2, dim=1)  # culprit
    guess = functional.log_softmax(student(x) / 2, dim=1)
    loss = functional.kl_div(guess, soft, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
