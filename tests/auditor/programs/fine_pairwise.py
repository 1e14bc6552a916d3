import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(10, 4), torch.randn(10)
score = model(x).squeeze(-1)
wrong = torch.sign(y[:, None] - y[None, :])
difference = score.unsqueeze(1) - score
loss = torch.relu(1 - wrong * difference).mean()
gram = torch.exp(-((x.unsqueeze(1) - x.unsqueeze(0)) ** 2).sum(-1))
loss = loss + (gram * score[:, None] * score[None, :]).mean()
loss.backward()
optimizer.step()
