# rule: dropout-in-eval
# says: a plain container
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(10, 10) for _ in range(3))
        drops = [nn.Dropout(0.3) for _ in range(2)]
        self.drops = list(drops) if BUG else nn.ModuleList(drops)  # culprit

    def forward(self, x):
        for layer, drop in zip(self.layers, self.drops):
            x = drop(F.relu(layer(x)))
        return self.layers[-1](x)


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x = torch.randn(32, 10)
    loss = F.cross_entropy(net(x), x.argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
