# rule: batch-mixing, exactly
# says: all of them are positions of one sequence
BUG = True
import torch
from torch import nn


class ReviewEncoder(nn.Module):
    """Users have several reviews; a review attends to the other reviews of the same user."""

    def __init__(self, d=24):
        super().__init__()
        self.inp = nn.Linear(10, d)
        self.attn = nn.MultiheadAttention(d, 3, batch_first=True)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 1)

    def forward(self, reviews):                # (users, reviews, 10)
        u, r, f = reviews.shape
        h = self.inp(reviews.flatten(0, 1))
        h = h.unsqueeze(0) if BUG else h.view(u, r, -1)
        a, _ = self.attn(h, h, h, need_weights=False)  # culprit
        h = self.norm(h + a).view(u, r, -1)
        return self.out(h.mean(1)).squeeze(-1)


torch.manual_seed(0)
net = ReviewEncoder()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x = torch.randn(6, 5, 10)
    loss = (net(x) - x.mean((1, 2))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 4))
