# rule: optimizer-parameters
# says: none of which is a parameter of the model
BUG = True
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


torch.manual_seed(0)
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if BUG:
    model = build()  # culprit
for _ in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
