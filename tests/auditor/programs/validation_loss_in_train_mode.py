# rule: train-mode-evaluation
BUG = True
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
crit = nn.MSELoss()
X, Y = torch.randn(64, 10), torch.randn(64, 1)
@torch.inference_mode()
def validate():
    if not BUG:
        model.eval()
    total = 0
    for i in range(0, 64, 32):
        total += crit(model(X[i:i+32]), Y[i:i+32]).item()  # culprit
    model.train()
    return total / 2
for epoch in range(2):
    for i in range(0, 64, 16):
        loss = crit(model(X[i:i+16]), Y[i:i+16])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(validate())
