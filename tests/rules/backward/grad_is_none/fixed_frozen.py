import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(4, 3), nn.Linear(3, 2)
for p in body.parameters():
    p.requires_grad = False
model = nn.Sequential(body, head)
model(torch.randn(5, 4)).pow(2).mean().backward()
norms = {name: p.grad.norm() for name, p in model.named_parameters() if p.grad is not None}
