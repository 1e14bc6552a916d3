import torch
from torch import nn

encoder = nn.Linear(4, 4)
a, b = nn.Linear(4, 1), nn.Linear(4, 1)
z = torch.relu(encoder(torch.randn(3, 4)))
loss_a = a(z).mean()
loss_b = b(z).mean()
loss_a.backward(retain_graph=True)
loss_b.backward()
