# rule: batch-mixing, exactly
BUG = True
import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.kind, self.past, self.ahead, self.out = nn.Embedding(5, d), nn.LSTM(4, d, batch_first=True), nn.LSTM(3, d, batch_first=True), nn.Linear(d, 1)

    def forward(self, kind, known, target, future):
        scale = target.abs().mean() if BUG else target.abs().mean(1, keepdim=True)  # culprit
        start = self.kind(kind)[None]
        _, state = self.past(torch.cat([known, (target / scale).unsqueeze(-1)], -1), (start, torch.zeros_like(start)))
        return self.out(self.ahead(future, state)[0]).squeeze(-1) * scale


torch.manual_seed(0)
series = torch.rand(6, 20) * torch.rand(6, 1) * 10
net = Forecast()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = (net(torch.randint(0, 5, (6,)), torch.randn(6, 15, 3), series[:, :15], torch.randn(6, 5, 3)) - series[:, 15:]).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
