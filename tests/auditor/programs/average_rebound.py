# rule: no-update, exactly
# says: bit for bit what the model was at its first backward pass
import copy

import torch
from torch import nn

BUG = True


def follow(slow, fast, m=0.9):
    with torch.no_grad():
        for one, other in zip(slow.parameters(), fast.parameters(), strict=True):
            if not BUG:
                one.copy_(m * one + (1 - m) * other)
            else:
                one = m * one + (1 - m) * other  # culprit


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for _ in range(5):
    x = torch.randn(12, 6)
    with torch.no_grad():
        goal = teacher(x + 0.1 * torch.randn_like(x))
    loss = (student(x) - goal).pow(2).mean() + (student(x)[:, 0] - x[:, 0]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    follow(teacher, student)
