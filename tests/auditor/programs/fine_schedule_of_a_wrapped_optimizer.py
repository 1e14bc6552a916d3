import torch
from torch import nn


class Wrapped(torch.optim.Optimizer):
    """As `accelerate` gives it: what it holds is the optimizer's own."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self.optimizer.step(closure)


torch.manual_seed(0)
net = nn.Linear(6, 3)
opt = Wrapped(torch.optim.AdamW(net.parameters(), 0.1))
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for _ in range(6):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step()
