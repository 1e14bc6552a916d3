# rule: gradient-cut, exactly
# says: `self.log_vars[0]` and `self.log_vars[1]`
BUG = True
import torch
from torch import nn


class Training:
    def __init__(self, net):
        self.net = net
        self.log_vars = [nn.Parameter(torch.zeros(())) for _ in range(2)]
        self.opt = torch.optim.Adam([*net.parameters(), *self.log_vars], 1e-2)

    def together(self, losses):
        total = 0.0
        for loss, log_var in zip(losses, self.log_vars):
            weight = log_var.detach() if BUG else log_var  # culprit
            total = total + loss * torch.exp(-weight) + weight
        return total

    def step(self, x):
        first, second = self.net(x).chunk(2, 1)
        loss = self.together([(first - x[:, :2]).pow(2).mean(), (second - x[:, 2:4]).abs().mean()])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


torch.manual_seed(0)
training = Training(nn.Linear(5, 4))
for _ in range(4):
    training.step(torch.randn(8, 5))
