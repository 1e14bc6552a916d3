# rule: activation-before-loss
import torch
from torch import nn
import torch.nn.functional as F

BUG = True
torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 4)

    def forward(self, h):
        scores = self.out(h)
        return scores.softmax(-1) if BUG else scores  # culprit


encoder, probe = nn.Linear(6, 6), Probe()
first, second = torch.optim.Adam(encoder.parameters()), torch.optim.Adam(probe.parameters())
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(4, (8,))
    first.zero_grad()
    F.mse_loss(encoder(x), x).backward()
    first.step()
    second.zero_grad()
    F.cross_entropy(probe(encoder(x).detach()), y).backward()
    second.step()
