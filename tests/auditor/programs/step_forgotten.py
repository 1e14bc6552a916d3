# rule: no-update, exactly
# says: gives gradients, and no step uses them
BUG = True
import torch
from torch import nn


def train(net, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
        loss.backward()  # culprit
        (list if BUG else optimizer.step)()


torch.manual_seed(0)
net = nn.Linear(4, 2)
train(net, torch.optim.Adam(net.parameters()))  # culprit
