# rule: gradient-cut
BUG = True
import torch
from torch import nn


def as_it_is(function):
    return function


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(10, 8), nn.ReLU()), nn.Linear(8, 5)

    @(torch.no_grad() if BUG else as_it_is)  # culprit
    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.features(x))


torch.manual_seed(0)
student = Student()
optimizer = torch.optim.Adam(student.parameters(), 1e-2)
nn.functional.cross_entropy(student(torch.randn(16, 10)), torch.randint(5, (16,))).backward()
optimizer.step()
