# rule: batch-mixing
# says: the output depends on none of them
# says: built here with `batch_first=False`
BUG = True
import torch
from torch import nn


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.token = nn.Linear(12, 16), nn.Parameter(torch.zeros(1, 1, 16))
        self.place = nn.Parameter(torch.randn(1, 10, 16) * 0.1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=not BUG)  # culprit
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, patches):
        x = torch.cat([self.token.expand(len(patches), -1, -1), self.patch(patches)], 1) + self.place
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.out(x[:, 0])


torch.manual_seed(0)
net = Pictures()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 9, 12)), torch.tensor([0, 1, 2, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
