# says: element `self.items` bank.items
import torch
from torch import nn


class Bank:
    def __init__(self):
        self.items = []

    def push(self, z):
        self.items = [*self.items, z][-3:]

    def all(self):
        return torch.cat(self.items)  # culprit: operand


torch.manual_seed(0)
encoder, bank = nn.Linear(3, 4), Bank()
for x in torch.randn(3, 2, 3):
    z = encoder(x).tanh()  # culprit: create
    bank.push(z)
    loss = -(z @ bank.all().T).log_softmax(1)[:, 0].mean()
    loss.backward()  # culprit: call
