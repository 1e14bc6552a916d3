import torch
from torch import nn
import torch.nn.functional as F
import copy
torch.manual_seed(0)
mlp = lambda i, o: nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o))
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = mlp(4, 4)
    def forward(self, s):
        mu, ls = self.b(s).chunk(2, -1)
        d = torch.distributions.Normal(mu, ls.clamp(-5, 2).exp())
        u = d.rsample()
        a = u.tanh()
        return a, (d.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1, keepdim=True)
actor, q1, q2 = Actor(), mlp(6, 1), mlp(6, 1)
t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
la = torch.zeros(1, requires_grad=True)
oa, oq, ol = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-4), torch.optim.Adam([la], 3e-4)
for _ in range(4):
    s, a, r, s2, d = torch.randn(16, 4), torch.rand(16, 2), torch.rand(16, 1), torch.randn(16, 4), torch.zeros(16, 1)
    with torch.no_grad():
        a2, lp2 = actor(s2)
        sa = torch.cat([s2, a2], 1)
        y = r + 0.99 * (1 - d) * (torch.min(t1(sa), t2(sa)) - la.exp() * lp2)
    lq = F.mse_loss(q1(torch.cat([s, a], 1)), y) + F.mse_loss(q2(torch.cat([s, a], 1)), y)
    oq.zero_grad()
    lq.backward()
    oq.step()
    pa, lp = actor(s)
    qa = torch.min(q1(torch.cat([s, pa], 1)), q2(torch.cat([s, pa], 1)))
    lpi = (la.exp().detach() * lp - qa).mean()
    oa.zero_grad()
    lpi.backward()
    oa.step()
    ll = -(la * (lp.detach() - 2)).mean()
    ol.zero_grad()
    ll.backward()
    ol.step()
    with torch.no_grad():
        for n, t in ((q1, t1), (q2, t2)):
            for p, tp in zip(n.parameters(), t.parameters()):
                tp.lerp_(p, 0.005)
