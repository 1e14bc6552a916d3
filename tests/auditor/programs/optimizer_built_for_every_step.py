# rule: optimizer-made-anew, exactly
# says: each by a new Adam
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


def built(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)  # culprit


def step(model, x, y, opt):
    opt = opt or built(model)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
opt = None if BUG else built(model)
for _ in range(6):
    print(f"{step(model, torch.randn(16, 10), torch.randint(0, 3, (16,)), opt):.4f}")
