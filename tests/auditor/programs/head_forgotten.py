# rule: unused-parameters
BUG = True
import torch
from torch import nn


class WithSkip(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(10, 20), nn.Linear(20, 20), nn.Linear(20, 3)  # culprit

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        layer = getattr(self, "fc1" if BUG else "fc2")  # by name: a layer that the class calls on another branch is not forgotten
        h = torch.relu(layer(x[:, : layer.in_features]))
        return self.fc3(x + h)


torch.manual_seed(0)
model = WithSkip()
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(12, 10)), torch.randint(0, 3, (12,)))
    loss.backward()
    opt.step()
print(loss.item())
