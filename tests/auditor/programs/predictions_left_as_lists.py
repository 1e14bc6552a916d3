# rule: train-mode-evaluation
# says: leave as a list, and so do as many labels
import torch
from torch import nn

BUG = True


def accuracy(model, batches):
    if not BUG:
        model.eval()
    predicted, truth = [], []
    with torch.no_grad():
        for x, y in batches:
            predicted.extend(model(x).argmax(dim=1).tolist())  # culprit
            truth.extend(y.tolist())
    model.train()
    return sum(p == t for p, t in zip(predicted, truth, strict=True)) / len(truth)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
    held_out = torch.randn(2, 12, 8)
    accuracy(model, [(part, part[:, :3].argmax(1)) for part in held_out])
