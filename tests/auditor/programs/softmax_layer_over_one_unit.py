# rule: softmax-axis, exactly
# says: `softmax` runs over one element
import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.act = nn.Softmax(dim=1) if BUG else nn.Sigmoid()  # culprit

    def forward(self, x):
        return self.act(self.body(x)).squeeze(1)  # culprit


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x = torch.randn(16, 4)
    loss = nn.functional.binary_cross_entropy(net(x), (x[:, 0] > 0).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
