# rule: dropout-in-eval, exactly
# says: is no part of the model
import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(6, 8), nn.Linear(8, 3), nn.Dropout(0.3)

    def forward(self, x):
        drop = nn.Dropout(0.3) if BUG else self.drop
        return self.b(drop(self.a(x).relu()))  # culprit


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    opt.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,))).backward()
    opt.step()
