# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.classifier = nn.Linear(24, 4)

    def forward(self, x):
        return self.classifier(self.encoder(x))


model = Model()
slow = torch.optim.SGD(model.encoder.parameters(), lr=1e-3)
fast = torch.optim.SGD(model.classifier.parameters(), lr=1e-1)  # culprit
for step in range(6):
    x, y = torch.randn(16, 12), torch.randint(0, 4, (16,))
    slow.zero_grad()
    fast.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    slow.step()
    if not BUG:
        fast.step()
print(loss.item())
