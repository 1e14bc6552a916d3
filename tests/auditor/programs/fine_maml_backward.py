import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
meta = torch.optim.Adam(model.parameters(), 1e-3)
for it in range(3):
    meta.zero_grad()
    total = 0
    for task in range(2):
        a = torch.rand(1) * 4
        xs, xq = torch.rand(10, 1), torch.rand(10, 1)
        params = dict(model.named_parameters())
        loss = F.mse_loss(functional_call(model, params, (xs,)), torch.sin(a * xs))
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        fast = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
        total = total + F.mse_loss(functional_call(model, fast, (xq,)), torch.sin(a * xq))
    total.backward()
    meta.step()
print(total.item())
