import torch
from torch import nn

model = nn.Linear(3, 2)
criterion = nn.MSELoss(reduction="none")
loss = criterion(model(torch.randn(4, 3)), torch.zeros(4, 2))  # culprit: create
loss.backward()  # culprit: call
# says: [4, 2] 8 elements reduction=
