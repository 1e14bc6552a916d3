# rule: view-for-transpose
# says: Write `(shares @ v).transpose(1, 2).reshape(b, n, d)`.
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        shares = (q @ k.mT / 2).softmax(-1)
        return self.out((shares @ v).reshape(b, n, d) if BUG else (shares @ v).transpose(1, 2).reshape(b, n, d))  # culprit


torch.manual_seed(0)
net, head = Attention(24, 3), nn.Linear(24, 2)
opt = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3)
for _ in range(2):
    loss = nn.functional.cross_entropy(head(net(torch.randn(4, 7, 24)).mean(1)), torch.randint(0, 2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
