import copy
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
    def forward(self, s):
        return self.net(s)
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1 = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.q2 = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, s, a):
        sa = torch.cat([s, a], 1)
        return self.q1(sa), self.q2(sa)
actor, critic = Actor(), Critic()
actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
oa, oc = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam(critic.parameters(), 3e-4)
for it in range(5):
    s, a, s2, r, nd = torch.randn(20, 4), torch.rand(20, 2) * 2 - 1, torch.randn(20, 4), torch.randn(20, 1), torch.ones(20, 1)
    with torch.no_grad():
        noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
        a2 = (actor_t(s2) + noise).clamp(-1, 1)
        target = r + nd * 0.99 * torch.min(*critic_t(s2, a2))
    q1, q2 = critic(s, a)
    loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
    oc.zero_grad(); loss.backward(); oc.step()
    if it % 2 == 1:
        la = -critic.q1(torch.cat([s, actor(s)], 1)).mean()
        oa.zero_grad(); la.backward(); oa.step()
        for m, t in ((actor, actor_t), (critic, critic_t)):
            for p, tp in zip(m.parameters(), t.parameters()):
                tp.data.copy_(0.005 * p.data + 0.995 * tp.data)
print(loss.item())
