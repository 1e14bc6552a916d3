# rule: causal-leak
# says: zeros are put after the last position here
BUG = True
import torch
from torch import nn


class NextSample(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 16, 3), nn.Conv1d(16, 2, 1)

    def forward(self, wave):
        wide = nn.functional.pad(wave, (1, 1) if BUG else (2, 0))  # culprit
        return self.second(torch.relu(self.first(wide)))


torch.manual_seed(0)
net = NextSample()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    wave = torch.randn(5, 2, 33).cumsum(2)
    loss = nn.functional.mse_loss(net(wave[..., :-1]), wave[..., 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
