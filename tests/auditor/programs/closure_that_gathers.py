# rule: gradients-kept, exactly
# says: within one step
"""The gradients are cleared once for each step of LBFGS, which calls its closure several times."""

import torch
from torch import nn

BUG = True


def fitted(net, inputs, wanted, rounds=5):
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=4)

    def closure():
        if not BUG:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs), wanted)
        loss.backward()  # culprit
        return loss

    for _ in range(rounds):
        optimizer.zero_grad()
        optimizer.step(closure)  # culprit
    return float(closure().detach())


torch.manual_seed(0)
inputs = torch.linspace(-1, 1, 40)[:, None]
print(fitted(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), inputs, torch.sin(3 * inputs)))
