import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)  # culprit: create
        self.reset()

    def reset(self):
        self.fc.weight.fill_(0.5)  # culprit: mutate


Net()
# says: fc.weight
