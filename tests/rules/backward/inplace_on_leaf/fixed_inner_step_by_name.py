import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
model, x, y = nn.Linear(2, 1), torch.randn(4, 2), torch.randn(4, 1)


def adapted(model, rate):
    fast = dict(model.named_parameters())
    loss = nn.functional.mse_loss(functional_call(model, fast, (x,)), y)
    gradients = torch.autograd.grad(loss, fast.values(), create_graph=True)
    fast = {name: p - rate * g for (name, p), g in zip(fast.items(), gradients)}
    return fast


nn.functional.mse_loss(functional_call(model, adapted(model, 0.1), (x,)), y).backward()
