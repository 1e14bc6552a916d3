# Agents that share one policy on purpose, each under its own name.
import torch
from torch import nn


class Team(nn.Module):
    def __init__(self, agents):
        super().__init__()
        policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.policies = nn.ModuleDict({name: policy for name in agents})

    def forward(self, seen):
        return {name: self.policies[name](one) for name, one in seen.items()}


torch.manual_seed(0)
team = Team(["left", "right"])
optimizer = torch.optim.Adam(team.parameters())
for _ in range(2):
    scores = team({"left": torch.randn(8, 4), "right": torch.randn(8, 4)})
    optimizer.zero_grad()
    sum(nn.functional.cross_entropy(one, torch.randint(2, (8,))) for one in scores.values()).backward()
    optimizer.step()
