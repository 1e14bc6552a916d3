# rule: activation-before-loss, exactly
BUG = True
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, state):
        return torch.softmax(self.net(state), -1)  # culprit


policy = Policy()
opt = torch.optim.Adam(policy.parameters(), 1e-3)
for _ in range(3):
    scores, rewards = [], []
    for _ in range(6):
        p = policy(torch.randn(6))
        action = Categorical(logits=p) if BUG else Categorical(p)  # culprit
        chosen = action.sample()
        scores.append(action.log_prob(chosen))
        rewards.append(float(chosen == 1) + 0.1 * len(rewards))
    gain = torch.tensor(rewards)
    loss = -(torch.stack(scores) * (gain - gain.mean())).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
