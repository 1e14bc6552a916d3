import torch
from torch import nn

torch.manual_seed(0)
body, policy, value = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 2), nn.Linear(16, 1)
optimizer = torch.optim.Adam([*body.parameters(), *policy.parameters(), *value.parameters()], lr=1e-2)
for _ in range(4):
    state = torch.zeros(8, 4)  # all of them at rest
    scores, values, rewards = [], [], []
    for _ in range(5):
        hidden = body(state)
        choice = torch.distributions.Categorical(logits=policy(hidden))
        action = choice.sample()
        scores.append(choice.log_prob(action))
        values.append(value(hidden).squeeze(-1))
        state = 0.9 * state + 0.1 * (2 * action[:, None] - 1) + 0.05 * torch.randn(8, 4)
        rewards.append(-state.pow(2).sum(1))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    advantage = returns - torch.stack(values)
    loss = -(torch.stack(scores) * advantage.detach()).mean() + advantage.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
