# rule: gradient-cut, exactly
# says: Pass `create_graph=True` for this call
import torch
from torch import nn

BUG = True


def derivative(y, x, keep=True):
    return torch.autograd.grad(y.sum(), x, create_graph=keep, retain_graph=True)[0]  # culprit


def weights(model, losses):
    """What each loss asks of the last layer: derivatives that are meant to be constants."""
    norms = [torch.autograd.grad(loss, model[-1].weight, retain_graph=True)[0].abs().mean() for loss in losses]
    return [norms[0] / (norm + 1e-8) for norm in norms]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    points = torch.rand(40, 2, requires_grad=True)
    u = model(points)
    first = derivative(u, points)
    second = derivative(first[:, :1], points, keep=not BUG)[:, :1]  # culprit
    speed = 1 / (1 + torch.autograd.grad(u.sum(), points, retain_graph=True)[0].norm(dim=1, keepdim=True))  # a weight
    losses = [(speed * (first[:, 1:] + u * first[:, :1] - 0.1 * second) ** 2).mean(), (model(torch.rand(10, 2)) ** 2).mean()]
    optimizer.zero_grad()
    sum(w * one for w, one in zip(weights(model, losses), losses, strict=True)).backward()
    optimizer.step()
