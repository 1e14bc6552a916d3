# rule: train-mode-evaluation
# says: and so do as many numbers that it is not given
import numpy as np
import torch
from torch import nn

BUG = True


@torch.no_grad()
def error(model, batches):
    if not BUG:
        model.eval()
    predicted, truth = [], []
    for x, y in batches:
        truth.append(y.numpy())
        predicted.append(model(x).squeeze(1).numpy())  # culprit
    model.train()
    return float(np.abs(np.concatenate(predicted) - np.concatenate(truth)).mean())


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x).squeeze(1), x.sum(1)).backward()
    optimizer.step()
    error(model, [(part, part.sum(1)) for part in torch.randn(3, 12, 8)])
