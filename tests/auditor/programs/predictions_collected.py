# rule: train-mode-evaluation
BUG = True
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
X, Y = torch.randn(64, 10), torch.randn(64, 1)
for epoch in range(2):
    model.train()
    for i in range(0, 64, 16):
        loss = nn.functional.mse_loss(model(X[i:i+16]), Y[i:i+16])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if not BUG:
        model.eval()
    preds = []
    with torch.no_grad():
        for i in range(0, 64, 8):
            preds.append(model(X[i:i+8]))  # culprit
        rmse = ((torch.cat(preds) - Y) ** 2).mean().sqrt()
    print(f"{rmse:.3f}")
