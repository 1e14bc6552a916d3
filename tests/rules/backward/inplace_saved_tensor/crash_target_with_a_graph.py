# says: `net.target.weight` No optimizer in sight holds torch.no_grad()
import copy

import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.head = nn.Linear(3, 2), nn.Linear(2, 2)
        self.target = copy.deepcopy(self.online)

    def forward(self, x):
        p = self.head(self.online(x)).tanh()
        t = self.target(x.requires_grad_()).tanh()  # culprit: save
        self.follow()
        return (p - t).square().mean()

    @torch.no_grad()
    def follow(self):
        for o, t in zip(self.online.parameters(), self.target.parameters()):
            t.lerp_(o, 0.1)  # culprit: mutate


net = Pair()
opt = torch.optim.SGD([*net.online.parameters(), *net.head.parameters()], lr=0.1)
loss = net(torch.randn(4, 3))
loss.backward()
