# rule: gradient-cut, exactly
# says: `v.bias` and `v.weight`
import torch
from torch import nn
from torch.distributions import Categorical

BUG = True
torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, s):
        h = torch.tanh(self.body(s))
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    policy, value = net(torch.randn(12, 4))
    action = policy.sample()
    gain = action.float() + 0.1 * torch.randn(12)
    advantage = (gain - value).detach()  # is to be cut off
    mistake = gain - (value.detach() if BUG else value)  # culprit
    loss = -(policy.log_prob(action) * advantage).mean() + 0.5 * mistake.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
