# rule: activation-before-loss, exactly
# says: no score is below zero
import torch
import torch.nn.functional as F
from torch import nn

BUG = True


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(10, 24), nn.Linear(24, 1)

    def forward(self, x):
        score = self.last(F.relu(self.first(x)))
        return F.relu(score).squeeze(-1) if BUG else score.squeeze(-1)  # culprit


torch.manual_seed(0)
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(32, 10)
    loss = F.binary_cross_entropy_with_logits(model(x), (x[:, 0] > 0).float())  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
