# rule: silent-broadcast, exactly
# says: Changing sample 0 of `x`
BUG = True
import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out, self.gate = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1), nn.Linear(4, 1)

    def forward(self, x):
        y = self.out(self.rnn(x)[0][:, -1])
        gate = torch.sigmoid(self.gate(x.mean(1)))
        y = y * (gate.squeeze(-1) if BUG else gate)  # culprit
        return y.mean(1)


torch.manual_seed(0)
m = Regression()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    loss = nn.functional.mse_loss(m(torch.randn(6, 10, 4)), torch.randn(6))
    opt.zero_grad()
    loss.backward()
    opt.step()
