import torch
from torch import nn

cell = nn.Linear(3, 3)
state = torch.zeros(2, 3)
total = 0.0
for t in range(4):
    state += torch.tanh(cell(state))  # culprit: mutate  # culprit: save
    total = total + state.pow(2).sum()  # culprit: save
total.backward()
