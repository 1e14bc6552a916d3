# says: `model.2.weight`
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
for p in model.parameters():
    p.requires_grad = False  # culprit: lost-grad
model[2] = nn.Linear(4, 1)
model.requires_grad_(False)  # culprit: lost-grad
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(2, 3)).mean()  # culprit: create
loss.backward()  # culprit: call
