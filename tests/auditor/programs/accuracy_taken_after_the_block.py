# rule: train-mode-evaluation
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
opt = torch.optim.Adam(net.parameters(), 0.01)
X, Y = torch.randn(100, 8), torch.randint(0, 3, (100,))


def accuracy(model, x, y):
    if not BUG:
        model.eval()
    with torch.no_grad():
        chosen = model(x).argmax(1)  # culprit
    model.train()
    return (chosen == y).float().mean().item()


for _ in range(3):
    for i in range(0, 80, 20):
        opt.zero_grad()
        nn.functional.cross_entropy(net(X[i : i + 20]), Y[i : i + 20]).backward()
        opt.step()
    print(accuracy(net, X[80:], Y[80:]))
