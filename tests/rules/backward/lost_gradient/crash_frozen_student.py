# says: `d.student.weight` frozen
import torch
from torch import nn
import torch.nn.functional as F


def freeze(net):
    for p in net.parameters():
        p.requires_grad = False  # culprit: lost-grad


class Distiller(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.teacher, self.student = nn.Linear(5, 3), nn.Linear(5, 3)
        freeze(getattr(self, frozen))  # culprit: call

    def forward(self, x):
        with torch.no_grad():  # as it should be
            soft = F.softmax(self.teacher(x), -1)
        return F.kl_div(F.log_softmax(self.student(x), -1), soft, reduction="batchmean")  # culprit: create


d = Distiller(frozen="student")
opt = torch.optim.SGD(d.parameters(), lr=0.1)
loss = d(torch.randn(4, 5))
loss.backward()  # culprit: call
