import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)  # culprit: create

    def forward(self, x):
        h = torch.sigmoid(self.fc(x))  # culprit: save
        return self.act(h)  # culprit: mutate


model = Block()
model(torch.randn(2, 4)).sum().backward()
# says: `h`
