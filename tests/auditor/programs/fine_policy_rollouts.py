import torch
from torch import nn
from torch.distributions import Categorical
torch.manual_seed(0)
class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1))
        self.pi = nn.Linear(32, 2)
        self.v = nn.Linear(32, 1)
    def forward(self, s):
        h = self.b(s)
        return self.pi(h), self.v(h).squeeze(-1)
net = AC()
opt = torch.optim.Adam(net.parameters(), lr=3e-4)
for it in range(3):
    S, A, LP, R, V = [], [], [], [], []
    s = torch.randn(4)
    with torch.no_grad():
        for t in range(40):
            logits, v = net(s)
            d = Categorical(logits=logits)
            a = d.sample()
            S.append(s)
            A.append(a)
            LP.append(d.log_prob(a))
            R.append(float(a.item() == int(s[0] > 0)))
            V.append(v)
            s = torch.randn(4)
        V = torch.stack(V)
        adv, last = torch.zeros(40), 0.0
        for t in reversed(range(40)):
            nxt = V[t + 1] if t < 39 else 0.0
            last = R[t] + 0.99 * nxt - V[t] + 0.95 * 0.99 * last
            adv[t] = last
        ret = adv + V
    S, A, LP = torch.stack(S), torch.stack(A), torch.stack(LP)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(3):
        logits, v = net(S)
        d = Categorical(logits=logits)
        ratio = (d.log_prob(A) - LP).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (v - ret).pow(2).mean() - 0.01 * d.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
