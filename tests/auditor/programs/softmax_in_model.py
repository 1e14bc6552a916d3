# rule: activation-before-loss
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)]
model = nn.Sequential(*layers, nn.Softmax(dim=-1)) if BUG else nn.Sequential(*layers)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(9, 4), torch.arange(9) % 3
for _ in range(2):
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output, y)  # culprit
    loss.backward()
    optimizer.step()
