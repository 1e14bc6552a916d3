# rule: view-for-transpose, exactly
# says: Write `x.reshape(b, t, self.heads, d // self.heads).transpose(1, 2)`.
BUG = True
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q, self.k, self.v = heads, nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        b, t, d = x.shape
        if BUG:
            return x.view(b, self.heads, t, d // self.heads)  # culprit
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return ((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 16), Layer(16, 4), Layer(16, 4), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    x = torch.randint(0, 30, (6, 9))
    loss = nn.functional.cross_entropy(model(x).mean(1), x[:, 0] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
