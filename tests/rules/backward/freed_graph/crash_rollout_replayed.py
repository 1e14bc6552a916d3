# says: `roll.scores` again before each backward
import torch
from torch import nn


class Rollout:
    def __init__(self):
        self.scores = []

    def add(self, score):
        self.scores.append(score)


policy, roll = nn.Linear(4, 2), Rollout()
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(3):
    roll.add(policy(torch.randn(4)).log_softmax(0)[0])  # culprit: create
for epoch in range(2):
    loss = -torch.stack(roll.scores).mean()  # culprit: operand
    opt.zero_grad()
    loss.backward()  # culprit: call
    opt.step()
