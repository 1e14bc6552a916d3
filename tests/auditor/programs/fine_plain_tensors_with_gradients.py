import torch
from torch import nn

torch.manual_seed(0)


class Lagrangian(nn.Module):
    """Its multipliers are moved by hand."""

    def __init__(self):
        super().__init__()
        self.multipliers = torch.zeros(2, requires_grad=True)

    def forward(self, loss, excess):
        return loss + (self.multipliers * excess).sum()


class Equation(nn.Module):
    """Its points are where the equation is to hold, and derivatives are taken with respect to them; the input is kept to look at its gradient."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 2))
        self.points = torch.rand(20, 1).requires_grad_()

    def forward(self, x):
        self.given = x
        return self.net(2 * x - 1)

    def residual(self):
        return torch.autograd.grad(self.net(2 * self.points - 1).sum(), self.points, create_graph=True)[0].pow(2).mean()


model, constraint = Equation(), Lagrangian()
opt = torch.optim.Adam(model.parameters())
for _ in range(4):
    out = model(torch.rand(8, 1, requires_grad=True))
    loss = constraint(model.residual() + out.pow(2).mean(), out.mean(0) - 0.1)
    opt.zero_grad()
    constraint.multipliers.grad = None
    loss.backward()
    opt.step()
    with torch.no_grad():
        constraint.multipliers += 0.5 * constraint.multipliers.grad
