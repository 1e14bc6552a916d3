# rule: shared-layers, exactly
import torch
from torch import nn

BUG = True
TASKS = ("age", "height")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 6)
        self.heads = nn.ModuleDict(dict.fromkeys(TASKS, nn.Linear(6, 1)) if BUG else {name: nn.Linear(6, 1) for name in TASKS})  # culprit

    def forward(self, x):
        h = self.trunk(x).relu()
        return sum(head(h) for head in self.heads.values()).squeeze(-1)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(torch.randn(8, 4)), torch.randn(8)).backward()
    optimizer.step()
