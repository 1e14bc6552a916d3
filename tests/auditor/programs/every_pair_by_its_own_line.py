# rule: loop-in-step, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        x = x / self.scale.exp()
        if not BUG:
            return (-0.5 * (x[:, None] - x[None]).pow(2).sum(-1)).exp()
        table = torch.zeros(len(x), len(x))
        for i in range(len(x)):  # culprit
            for j in range(len(x)):  # culprit
                table[i, j] = (-0.5 * (x[i] - x[j]).pow(2).sum()).exp()  # culprit
        return table


kernel = Kernel()
opt = torch.optim.Adam(kernel.parameters(), 0.05)
x = torch.randn(12, 5)
y = x[:, :1].sin()
for _ in range(2):
    low = torch.linalg.cholesky(kernel(x) + 0.1 * torch.eye(12))
    loss = 0.5 * (y * torch.cholesky_solve(y, low)).sum() + low.diagonal().log().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
