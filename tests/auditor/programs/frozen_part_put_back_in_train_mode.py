# rule: eval-mode-undone
# says: `backbone.1` behaves differently in training
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 3)
        self.backbone.requires_grad_(False)
        self.backbone.eval()

    def forward(self, x):
        return self.head(self.backbone(x))


model = Tuned()
opt = torch.optim.Adam(model.head.parameters(), 1e-3)
for _ in range(3):
    model.train()  # culprit
    if not BUG:
        model.backbone.eval()
    loss = F.cross_entropy(model(torch.randn(16, 8) * 3 + 1), torch.randint(0, 3, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
