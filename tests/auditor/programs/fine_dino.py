import copy

import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(8, 12, bias=False))

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


class DINO(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), Head())
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.register_buffer("center", torch.zeros(1, 12))

    @torch.no_grad()
    def update(self, t_out, m=0.99):
        self.center.mul_(0.9).add_(t_out.mean(0, keepdim=True), alpha=0.1)
        for ps, pt in zip(self.student.parameters(), self.teacher.parameters()):
            pt.data.mul_(m).add_(ps.detach().data, alpha=1 - m)

    def forward(self, a, b):
        s = self.student(torch.cat([a, b])).chunk(2)
        with torch.no_grad():
            t = self.teacher(torch.cat([a, b]))
        tt = ((t - self.center) / 0.04).softmax(-1).detach().chunk(2)
        loss = sum(-(tt[i] * F.log_softmax(s[1 - i] / 0.1, -1)).sum(-1).mean() for i in range(2)) / 2
        return loss, t


torch.manual_seed(0)
model = DINO()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-4)
for _ in range(3):
    x = torch.rand(8, 3, 16, 16)
    loss, t = model(x, x.flip(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.update(t)
print(loss.item())
