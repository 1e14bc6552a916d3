# rule: optimizer-parameters
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
head = nn.Linear(12, 2)
chosen = backbone.parameters() if BUG else [*backbone.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(chosen)  # culprit
x, y = torch.randn(10, 6), torch.arange(10) % 2
for _ in range(2):
    loss = nn.functional.cross_entropy(head(backbone(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
