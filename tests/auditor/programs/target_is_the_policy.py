# rule: state-not-copied, exactly
# says: two names stand for one model
import copy

import torch
import torch.nn.functional as F
from torch import nn

BUG = True


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
        self.target = self.policy  # culprit
        if not BUG:
            self.target = copy.deepcopy(self.policy)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def learn(self, state, action, reward, after):
        with torch.no_grad():
            goal = reward + 0.99 * self.target(after).amax(1)
        loss = F.smooth_l1_loss(self.policy(state).gather(1, action).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


torch.manual_seed(0)
agent = Agent()
for step in range(6):
    agent.learn(torch.randn(16, 4), torch.randint(0, 2, (16, 1)), torch.randn(16), torch.randn(16, 4))
    if step % 3 == 2:
        agent.target.load_state_dict(agent.policy.state_dict())  # culprit
