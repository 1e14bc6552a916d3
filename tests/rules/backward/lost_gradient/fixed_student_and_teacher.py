import torch
from torch import nn
import torch.nn.functional as F


class Distiller:
    def __init__(self, teacher, student, T=2.0):
        self.teacher, self.student, self.T = teacher, student, T
        self.opt = torch.optim.SGD(student.parameters(), lr=0.1)

    @torch.no_grad()
    def soft_targets(self, x):
        return F.softmax(self.teacher(x) / self.T, dim=-1)

    def logits(self, x):
        return self.student(x) / self.T

    def loss(self, x):
        p = self.soft_targets(x)
        q = F.log_softmax(self.logits(x), dim=-1)
        return F.kl_div(q, p, reduction="batchmean")

    def fit(self, batches):
        for x in batches:
            self.opt.zero_grad()
            self.loss(x).backward()
            self.opt.step()


d = Distiller(nn.Linear(5, 3), nn.Linear(5, 3))
d.fit(torch.randn(6, 5) for _ in range(3))
