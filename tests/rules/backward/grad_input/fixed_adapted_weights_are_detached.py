import torch
from torch.func import functional_call

net = torch.nn.Linear(3, 1)
x = torch.ones(5, 3)
fast = dict(net.named_parameters())
for _ in range(2):
    loss = functional_call(net, fast, (x,)).pow(2).mean()
    grads = torch.autograd.grad(loss, list(fast.values()))
    fast = {name: w - 0.1 * g for (name, w), g in zip(fast.items(), grads)}
outer = functional_call(net, fast, (x,)).sum()
torch.autograd.grad(outer, list(net.parameters()))
