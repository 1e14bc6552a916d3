# says: freed the graph of `loss`
import torch
from torch import nn


def hvp(loss, params, v):
    (g,) = torch.autograd.grad(loss, params, create_graph=True)  # culprit: call
    return torch.autograd.grad((g * v).sum(), params)[0]  # culprit: call


torch.manual_seed(0)
net = nn.Linear(3, 1, bias=False)
loss = net(torch.randn(5, 3)).tanh().square().mean()
v = torch.ones(1, 3)
for _ in range(3):
    v = hvp(loss, [net.weight], v)
print(v)
