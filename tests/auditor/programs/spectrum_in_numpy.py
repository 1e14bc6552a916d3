# rule: gradient-cut, exactly
# says: is a term of the loss
import numpy as np
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Conv1d(1, 1, 9, padding=4)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
levels = []


def spectrum(wave):
    if BUG:
        return torch.from_numpy(np.abs(np.fft.rfft(wave.detach().numpy()))).float()  # culprit
    return torch.fft.rfft(wave).abs()


for _ in range(3):
    clean = torch.randn(4, 1, 64)
    guess = net(clean + 0.1 * torch.randn(4, 1, 64))
    levels.append(guess.detach().numpy().max())  # only looked at
    spare = torch.zeros_like(guess).sum()
    far = (spectrum(guess) - spectrum(clean)).abs().mean()
    loss = (guess - clean).abs().mean() + 0.3 * far + spare  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
