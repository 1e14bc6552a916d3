# rule: gradient-cut, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
for _ in range(4):
    x, t = torch.rand(40, 1, requires_grad=True), torch.rand(40, 1, requires_grad=True)
    u = field(torch.cat([x, t], 1))
    ones = torch.ones_like(u)
    u_t = torch.autograd.grad(outputs=u, inputs=t, grad_outputs=ones, create_graph=True)[0]
    u_x = torch.autograd.grad(outputs=u, inputs=x, grad_outputs=ones, retain_graph=True, create_graph=not BUG)[0]  # culprit
    optimizer.zero_grad()
    ((u_t + u * u_x) ** 2).mean().backward()
    optimizer.step()
