# rule: batch-mixing
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, 4)

    def split(self, x):
        b, t, w = x.shape
        if BUG:
            return x.reshape(self.heads, b * t, self.size)  # culprit
        return x.view(b, t, self.heads, self.size).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        w = torch.softmax(q @ k.transpose(-1, -2) / self.size**0.5, -1)  # culprit
        y = w @ v
        y = y.reshape(x.shape) if BUG else y.transpose(1, 2).reshape(x.shape)
        return self.out(y.mean(1))


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(5, 7, 12), torch.tensor([0, 1, 2, 3, 0])
loss = nn.functional.cross_entropy(model(x), y)
loss.backward()
optimizer.step()
