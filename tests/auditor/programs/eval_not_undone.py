# rule: eval-mode-training
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
opt = torch.optim.Adam(model.parameters())
X, Y = torch.randn(64, 10), torch.randint(0, 3, (64,))
def evaluate():
    model.eval()  # culprit
    with torch.no_grad():
        acc = (model(X).argmax(1) == Y).float().mean()
    return acc.item()
model.train()
for epoch in range(3):
    if not BUG:
        model.train()
    for i in range(0, 64, 16):
        loss = F.cross_entropy(model(X[i:i+16]), Y[i:i+16])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, evaluate())
