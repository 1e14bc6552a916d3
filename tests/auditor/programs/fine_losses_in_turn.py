# Both losses are computed in every step, and each step uses one of them; a third is only to be looked at, of what the first one trains.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body, first, second = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 3), nn.Linear(16, 2)
opt = torch.optim.SGD([*body.parameters(), *first.parameters(), *second.parameters()], lr=0.1)
for step in range(5):
    x = torch.randn(16, 10)
    h = body(x)
    scores = first(h)
    one, two = F.cross_entropy(scores, x[:, :3].argmax(1)), F.cross_entropy(second(h), (x[:, 0] > 0).long())
    both = one + two
    smooth = F.mse_loss(scores.softmax(1), F.one_hot(x[:, :3].argmax(1), 3).float())
    opt.zero_grad()
    (two if step % 2 else one).backward()
    opt.step()
    print(f"{both.item():.4f} {smooth.item():.4f}")
