# rule: silent-broadcast
BUG = True
import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh())
        self.mu, self.v = nn.Linear(32, 1), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        h = self.body(obs)
        return self.mu(h), self.log_std.exp(), self.v(h)


torch.manual_seed(0)
ac = ActorCritic()
opt = torch.optim.Adam(ac.parameters(), lr=3e-4)
obs = torch.randn(20, 5)
with torch.no_grad():
    mu, std, value = ac(obs)
    dist = Normal(mu, std)
    actions = dist.sample()
    old_logp = dist.log_prob(actions).sum(-1)
    returns = torch.randn(20)
    adv = returns - value.squeeze(-1)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
for epoch in range(4):
    mu, std, value = ac(obs)
    dist = Normal(mu, std)
    logp = dist.log_prob(actions)
    if not BUG:
        logp = logp.sum(-1)
    ratio = (logp - old_logp).exp()  # culprit
    surr = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
    loss = -surr.mean() + 0.5 * (value.squeeze(-1) - returns).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
    opt.step()
print(loss.item())
