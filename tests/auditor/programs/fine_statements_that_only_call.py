# Lines that are nothing but a call: into the tensor, a module that is tried out, a check whether something can be done.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.relu, self.b = nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Linear(16, 2)

    def forward(self, x):
        h = self.a(x)
        self.relu(h)
        try:
            h.unsqueeze(9)
        except IndexError:
            pass
        k = self.a(x)
        F.relu(k, inplace=True)
        return self.b(h) + 2 * self.b(k)


net = nn.Sequential(Net(), nn.Tanh())
net(torch.randn(1, 6))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x = torch.randn(16, 6)
    loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    for p in net.parameters():
        p.grad.clamp_(-1, 1)
    opt.step()
