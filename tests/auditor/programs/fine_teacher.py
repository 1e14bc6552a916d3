import copy

import torch
from torch import nn


class Distill(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
        self.teacher = copy.deepcopy(self.student)

    def forward(self, x):
        with torch.no_grad():
            goal = self.teacher(x).softmax(-1)
        return nn.functional.kl_div(self.student(x + 0.1 * torch.randn_like(x)).log_softmax(-1), goal, reduction="batchmean")


torch.manual_seed(0)
model = Distill()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(6, 5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for t, s in zip(model.teacher.parameters(), model.student.parameters()):
        t.data.lerp_(s.data, 0.1)
