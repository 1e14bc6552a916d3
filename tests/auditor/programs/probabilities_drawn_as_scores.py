# rule: activation-before-loss
# says: `gumbel_softmax` is given the result of `softmax`
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.out = nn.Linear(12, 4), nn.Linear(12, 3)
        self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        scores = self.gate(x)
        if BUG:
            scores = F.softmax(scores, dim=-1)  # culprit
        choice = F.gumbel_softmax(scores, tau=0.5, hard=True)
        return self.out((choice.unsqueeze(-1) * torch.stack([e(x) for e in self.experts], dim=1)).sum(1))


net = Router()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x, y = torch.randn(16, 12), torch.randint(0, 3, (16,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
