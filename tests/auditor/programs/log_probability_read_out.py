# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state):
        h = self.trunk(state)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


torch.manual_seed(0)
net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), 3e-3)
for episode in range(3):
    state, log_probs, values, rewards = torch.randn(4), [], [], []
    for _ in range(8):
        policy, value = net(state)
        action = policy.sample()
        log_prob = policy.log_prob(action)
        log_probs.append(log_prob.item() if BUG else log_prob)  # culprit
        values.append(value)
        state = state + 0.1 * torch.randn(4) + 0.05 * action.item()
        rewards.append(float(-state.abs().sum()))
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    values = torch.stack(values)
    log_probs = torch.tensor(log_probs) if BUG else torch.stack(log_probs)  # culprit
    loss = -(log_probs * (returns - values).detach()).mean() + nn.functional.mse_loss(values, returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
