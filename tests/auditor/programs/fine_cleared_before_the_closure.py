"""A closure that is called once for each step: the gradients are cleared before it, and there are none when the step begins."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs = torch.linspace(-1, 1, 40)[:, None]
for _ in range(6):

    def closure():
        loss = nn.functional.mse_loss(net(inputs), torch.sin(3 * inputs))
        loss.backward()
        return loss

    optimizer.zero_grad()
    loss = optimizer.step(closure)
print(float(loss.detach()))
