# rule: unregistered-parameters
BUG = True
import torch
from torch import nn


class Tower(object if BUG else nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def __call__(self, x):
        return torch.relu(self.fc(x))


class Recommender(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.users, self.items = nn.Embedding(30, d), nn.Embedding(40, d)
        self.tower = Tower(d)  # culprit

    def forward(self, user, item):
        return (self.tower(self.users(user)) * self.items(item)).sum(-1)


torch.manual_seed(0)
model = Recommender()
optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
score = model(torch.randint(30, (16,)), torch.randint(40, (16,)))
nn.functional.binary_cross_entropy_with_logits(score, torch.rand(16)).backward()
optimizer.step()
