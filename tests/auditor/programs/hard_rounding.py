# rule: zero-gradient
BUG = True
import torch
from torch import nn


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = 8 * torch.sigmoid(self.first(x))
        q = h.round()  # culprit
        if not BUG:
            q = h + (q - h).detach()
        return self.second(q / 8)


torch.manual_seed(0)
model = Quantised()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(10, 4)
for _ in range(2):
    loss = (model(x).squeeze(1) - x[:, 0]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
