# rule: train-mode-evaluation
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 36, 4)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 1, 8, 8, device="cuda"), torch.randint(0, 4, (32,), device="cuda")
for epoch in range(3):
    model.train()
    for i in range(0, 24, 8):
        loss = nn.functional.cross_entropy(model(x[i : i + 8]), y[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if not BUG:
        model.eval()
    with torch.no_grad():
        hits = (model(x[24:]).argmax(1) == y[24:]).float().mean()  # culprit
print(0 <= hits.item() <= 1)
