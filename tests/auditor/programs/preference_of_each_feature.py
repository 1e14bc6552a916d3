# rule: softmax-axis
# says: takes a difference of such sums, [8]
BUG = True
import torch
from torch import nn
from torch.nn import functional as F


class Factors(nn.Module):
    def __init__(self, users, items, width=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, width), nn.Embedding(items, width)

    def forward(self, user, liked, other):
        u, a, b = self.user(user), self.item(liked), self.item(other)
        axis = 0 if BUG else 1
        return (u * a).sum(axis), (u * b).sum(axis)  # culprit


torch.manual_seed(0)
net = Factors(20, 30)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(3):
    user, liked, other = torch.randint(0, 20, (12,)), torch.randint(0, 30, (12,)), torch.randint(0, 30, (12,))
    yes, no = net(user, liked, other)
    loss = -F.logsigmoid(yes - no).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
