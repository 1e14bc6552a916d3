"""Returns, states and actions in turn: an action is predicted at the state before it, where the model has not seen it."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.action, self.place = nn.Linear(5, 16), nn.Embedding(3, 16), nn.Embedding(20, 16)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1)
        self.out = nn.Linear(16, 3)

    def forward(self, states, actions):
        samples, steps = actions.shape
        x = torch.stack([self.state(states), self.action(actions)], 2).flatten(1, 2) + self.place.weight[: 2 * steps]
        later = torch.ones(2 * steps, 2 * steps, dtype=torch.bool).triu(1)
        return self.out(self.layers(x, mask=later).view(samples, steps, 2, -1)[:, :, 0])


torch.manual_seed(0)
net = Policy()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    actions = torch.randint(0, 3, (6, 8))
    loss = nn.functional.cross_entropy(net(torch.randn(6, 8, 5), actions).flatten(0, 1), actions.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
