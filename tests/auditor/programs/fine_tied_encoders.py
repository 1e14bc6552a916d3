import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv1d(1, 4, 3), nn.Linear(4 * 8, 8)

    def forward(self, x, detach=False):
        h = torch.relu(self.conv(x)).flatten(1)
        return torch.tanh(self.fc(h.detach() if detach else h))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mean = Encoder(), nn.Linear(8, 2)

    def forward(self, x):
        return torch.tanh(self.mean(self.encoder(x, detach=True)))  # the critic's loss trains the convolution


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.value = Encoder(), nn.Linear(10, 1)

    def forward(self, x, action, detach=False):
        return self.value(torch.cat([self.encoder(x, detach), action], 1))


torch.manual_seed(0)
actor, critic = Actor(), Critic()
actor.encoder.conv = critic.encoder.conv
of_critic, of_actor = torch.optim.Adam(critic.parameters(), 1e-3), torch.optim.Adam(actor.parameters(), 1e-3)
for step in range(4):
    x, action = torch.randn(8, 1, 10), torch.rand(8, 2)
    of_critic.zero_grad()
    F.mse_loss(critic(x, action), torch.rand(8, 1)).backward()
    of_critic.step()
    of_actor.zero_grad()
    (-critic(x, actor(x), detach=True).mean()).backward()
    of_actor.step()
