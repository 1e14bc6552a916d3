# rule: aliased-results
# says: `output[1]` and `output[2]` are one and the same tensor
BUG = True
import torch
from torch import nn


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.spread, self.back = nn.Linear(20, 4), nn.Linear(20, 4), nn.Linear(4, 20)

    def encode(self, x):
        mean, spread = self.mean(x), self.spread(x)
        if BUG:
            return mean, mean  # culprit
        else:
            return mean, spread

    def forward(self, x):
        mean, spread = self.encode(x)
        return self.back(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


torch.manual_seed(0)
coder = Coder()
opt = torch.optim.SGD(coder.parameters(), lr=1e-2)
x = torch.randn(10, 20)
for _ in range(2):
    again, mean, spread = coder(x)
    loss = nn.functional.mse_loss(again, x) - (1 + spread - mean**2 - spread.exp()).mean() / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
