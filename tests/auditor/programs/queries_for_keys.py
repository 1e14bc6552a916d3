# rule: unused-parameters
# says: gives again what
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        q = self.q(x)
        k = getattr(self, "q" if BUG else "k")(x)  # culprit
        weights = (q @ k.transpose(1, 2)).softmax(-1)
        return self.head((weights @ self.v(x)).mean(1))


torch.manual_seed(0)
net = Attention()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(5, 7, 8), torch.arange(5) % 3
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
