import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(torch.sigmoid(self.fc(x)))


model = Block()
model(torch.randn(2, 4)).sum().backward()
