import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss, normalize

torch.manual_seed(0)
one, other = nn.Linear(10, 16), nn.Linear(12, 16)
opt = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=1e-3)
for _ in range(2):
    u, v = normalize(one(torch.randn(8, 10)), dim=-1), normalize(other(torch.randn(8, 12)), dim=-1)
    labels = torch.arange(8)
    loss = cross_entropy(100 * u @ v.T, labels) + nll_loss(log_softmax(v @ u.T / 0.01, -1), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
