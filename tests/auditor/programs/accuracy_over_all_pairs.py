# rule: silent-broadcast
# says: all pairs instead of 16 matching elements are compared
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = seen = 0
    for x, y in loader:
        scores = model(x)
        if BUG:
            scores = scores.squeeze(1)
        right += ((scores > 0).float() == y).sum().item()  # culprit
        seen += len(y)
    model.train()
    return right / seen


x = torch.randn(64, 9)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).float().unsqueeze(1)), 16)
model = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(2):
    for a, b in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(accuracy(model, loader))
