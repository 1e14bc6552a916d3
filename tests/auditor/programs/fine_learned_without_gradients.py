"""Right: an optimizer of the program's own that asks its closure for values alone."""
import torch
from torch import nn


class Perturbing(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure):
        held = self.param_groups[0]["params"]
        ways = [torch.randint_like(p, 0, 2) * 2 - 1 for p in held]
        before = closure()
        for p, way in zip(held, ways):
            p.add_(0.01 * way)
        gain = (closure() - before) / 0.01
        for p, way in zip(held, ways):
            p.sub_(0.01 * way + 0.01 * gain * way)


torch.manual_seed(0)
net, x = nn.Linear(3, 1), torch.randn(10, 3)
opt = Perturbing(net.parameters())
for _ in range(5):
    opt.step(lambda: (net(x) - x[:, :1]).pow(2).mean())
