# rule: train-mode-evaluation
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    def forward(self, x):
        return self.f(x)
model = Net()
opt = torch.optim.Adam(model.parameters())
X, Y = torch.randn(64, 10), torch.randint(0, 3, (64,))
for epoch in range(3):
    model.train()
    for i in range(0, 64, 16):
        loss = F.cross_entropy(model(X[i:i+16]), Y[i:i+16])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if not BUG:
        model.eval()
    with torch.no_grad():
        correct = 0
        for i in range(0, 64, 16):
            out = model(X[i:i+16])  # culprit
            correct += (out.argmax(1) == Y[i:i+16]).sum().item()
    print(correct / 64)
