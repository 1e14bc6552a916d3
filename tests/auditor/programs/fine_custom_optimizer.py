import torch
from torch import nn
torch.manual_seed(0)
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(params, dict(lr=lr, betas=betas))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                b1, b2 = g["betas"]
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-g["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
class MySGD:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
    def zero_grad(self):
        for p in self.params:
            p.grad = None
    def step(self):
        with torch.no_grad():
            for p in self.params:
                p.copy_(p - self.lr * p.grad)
a, b = nn.Linear(4, 4), nn.Linear(4, 2)
o1, o2 = Lion(a.parameters()), MySGD(b.parameters(), 0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(b(torch.relu(a(torch.randn(9, 4)))), torch.randint(0, 2, (9,)))
    o1.zero_grad(); o2.zero_grad(); loss.backward(); o1.step(); o2.step()
print(loss.item())
