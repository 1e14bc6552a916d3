# rule: gradient-cut
# says: after the backward pass 4 of 4 trainable parameters have no gradient because of this
import torch
from torch import nn
from torch.func import functional_call

BUG = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    phase, outer = torch.rand(1), 0.0
    for _ in range(2):
        fast = {name: p.detach().clone().requires_grad_() if BUG else p for name, p in model.named_parameters()}  # culprit
        x = torch.rand(10, 1)
        loss = (functional_call(model, fast, (x,)) - torch.sin(6 * x + phase)).pow(2).mean()
        slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: p - 0.01 * slope for (name, p), slope in zip(fast.items(), slopes, strict=True)}
        outer = outer + (functional_call(model, fast, (x,)) - torch.sin(6 * x + phase)).pow(2).mean()
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
