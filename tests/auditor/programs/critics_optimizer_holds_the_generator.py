# rule: optimizer-parameters
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
bce = nn.functional.binary_cross_entropy_with_logits
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
making = torch.optim.Adam(maker.parameters(), 1e-3)
judging = torch.optim.Adam((maker if BUG else critic).parameters(), 1e-3)  # culprit
for _ in range(4):
    real, fake = torch.randn(16, 2) + 2, maker(torch.randn(16, 4))
    right, wrong = critic(real), critic(fake.detach())
    loss = bce(right, torch.ones_like(right)) + bce(wrong, torch.zeros_like(wrong))
    judging.zero_grad()
    loss.backward()
    judging.step()
    judged = critic(fake)
    making.zero_grad()
    bce(judged, torch.ones_like(judged)).backward()
    making.step()
