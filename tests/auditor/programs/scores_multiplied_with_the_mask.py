# rule: padding-leak
# says: scores are multiplied with the mask before the softmax
# says: masked_fill(mask == 0, float('-inf'))
BUG = True
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Events:
    features: Tensor
    count: Tensor


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.score, self.out = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, events):
        h = torch.tanh(self.inner(events.features))
        real = torch.arange(h.shape[1]) < events.count.unsqueeze(1)
        scores = self.score(h).squeeze(-1)
        scores = scores * real if BUG else scores.masked_fill(~real, float("-inf"))  # culprit
        return self.out(torch.einsum("nt,ntd->nd", scores.softmax(1), h)).squeeze(1)


torch.manual_seed(0)
count = torch.tensor([9, 5, 7, 2])
events = Events(torch.randn(4, 9, 6) * (torch.arange(9) < count[:, None]).unsqueeze(-1), count)
net = Attending()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.mse_loss(net(events), torch.tensor([0.0, 1.0, 2.0, 1.0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
