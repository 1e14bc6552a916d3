# Gradients that are made before the step and thrown away on purpose: of each task to compare them, of an attack, of each sample to be clipped.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def backward(loss):
    opt.zero_grad()
    loss.backward()


for _ in range(5):  # conflicting gradients projected: each task's is kept, and one is put together of them
    x = torch.randn(6, 5)
    kept = []
    for task in range(2):
        backward((net(x)[:, task] - x[:, task]).pow(2).mean())
        kept.append([p.grad.clone() for p in net.parameters()])
    for p, a, b in zip(net.parameters(), *kept, strict=True):
        dot = (a * b).sum()
        p.grad = a + b - (dot / b.pow(2).sum() * b if dot < 0 else 0)
    opt.step()

for _ in range(5):  # an attack on the inputs, then the step on what it made
    x, y = torch.randn(6, 5, requires_grad=True), torch.randint(2, (6,))
    backward(nn.functional.cross_entropy(net(x), y))
    backward(nn.functional.cross_entropy(net((x + 0.1 * x.grad.sign()).detach()), y))
    opt.step()
