# rule: batch-mixing, exactly
BUG = True
import torch
from torch import nn


class Film(nn.Module):
    """As many samples as colours: joined with the frames, the samples are along the first axis all the same."""

    def __init__(self, d=12):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 3, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, d))
        self.follow, self.out = nn.LSTM(d, d), nn.Linear(d, 5)

    def forward(self, film):
        b, t = film.shape[:2]
        h = self.look(film.flatten(0, 1))
        if BUG:
            h = h.view(t, b, -1)  # culprit
        else:
            h = h.view(b, t, -1).transpose(0, 1)
        return self.out(self.follow(h)[0][-1])


torch.manual_seed(0)
net = Film()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(3, 6, 3, 12, 12)), torch.tensor([0, 4, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
