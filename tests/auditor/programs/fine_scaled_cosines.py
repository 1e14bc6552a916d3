import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)


class Margin(nn.Module):
    def __init__(self, width, classes, scale=64.0, margin=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width))
        self.scale, self.margin = scale, margin

    def forward(self, x, label):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        moved = torch.cos(cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos() + self.margin)
        out = torch.where(F.one_hot(label, cosine.shape[1]).bool(), moved, cosine)
        out *= self.scale
        return out


body, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), Margin(4, 8)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01)
for _ in range(3):
    label = torch.randint(0, 8, (16,))
    loss = F.cross_entropy(head(body(torch.randn(16, 6)), label), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
