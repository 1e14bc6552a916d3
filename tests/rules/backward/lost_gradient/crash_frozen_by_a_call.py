import torch
from torch import nn


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False  # culprit: lost-grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x))


model = Net()
freeze(model)  # culprit: call
loss = model(torch.randn(5, 3)).mean()  # culprit: create
loss.backward()  # culprit: call
# says: had them frozen
