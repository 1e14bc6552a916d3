# rule: eval-mode-training
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(12, 4), torch.arange(12) % 2


def evaluate():
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


print(evaluate())
for _ in range(3):
    if not BUG:
        model.train()
    loss = nn.functional.cross_entropy(model(x), y)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(evaluate())
