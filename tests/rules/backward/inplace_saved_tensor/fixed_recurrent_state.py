import torch
from torch import nn

cell = nn.Linear(3, 3)
states = [torch.zeros(2, 3)]
total = 0.0
for t in range(4):
    states.append(states[-1] + torch.tanh(cell(states[-1])))
    total = total + states[-1].pow(2).sum()
total.backward()
