# rule: gradient-cut, exactly
BUG = True
import numpy as np
import torch
from torch import nn


def whitened(h):
    if not BUG:
        return (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-5)
    a = h.detach().numpy()  # culprit
    return torch.as_tensor((a - a.mean(1, keepdims=True)) / (a.std(1, keepdims=True) + 1e-5), dtype=torch.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head, self.log = nn.Sequential(nn.Linear(12, 8), nn.Tanh()), nn.Linear(8, 3), {}

    def forward(self, x):
        h = self.encoder(x)
        self.log["norm"] = h.norm(dim=1).mean().item()  # looked at, and no part of the result
        self.log["active"] = (h > 0).float().mean().item()
        return self.head(whitened(h))


torch.manual_seed(0)
np.random.seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
nn.functional.cross_entropy(net(torch.randn(16, 12)), torch.randint(3, (16,))).backward()
optimizer.step()
