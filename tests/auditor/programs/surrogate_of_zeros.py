# rule: zero-gradient, exactly
BUG = True
import torch
from torch import nn


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (potential,) = ctx.saved_tensors
        slope = (potential.abs() > 100).float() if BUG else 1 / (10 * potential.abs() + 1) ** 2
        return grad * slope  # culprit


class Neurons(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.current = nn.Linear(i, o)

    def forward(self, inputs):
        potential, spikes = 0.0, []
        for x in inputs:
            potential = 0.9 * potential + self.current(x)
            spikes.append(Spike.apply(potential - 0.3))
            potential = potential * (1 - spikes[-1].detach())
        return torch.stack(spikes)


torch.manual_seed(0)
net = nn.Sequential(Neurons(6, 20), Neurons(20, 3))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.rand(8, 5, 6)).mean(0), torch.randint(3, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
