import torch
import torch.nn.functional as F
from torch import nn


def fit(parameters, loss_of, steps=4):
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
x = torch.randn(48, 10)
y = (x[:, 0] > 0).long()
encoder, decoder = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4)), nn.Linear(4, 10)
fit([*encoder.parameters(), *decoder.parameters()], lambda: F.mse_loss(decoder(encoder(x)), x))
encoder.eval()
probe = nn.Linear(4, 2)  # on features that are trained no more, and get gradients that nobody uses
fit(probe.parameters(), lambda: F.cross_entropy(probe(encoder(x)), y))
student = nn.Sequential(nn.Linear(10, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 2))
fit(student.parameters(), lambda: F.kl_div(student(x).log_softmax(-1), probe(encoder(x)).softmax(-1).detach(), reduction="batchmean"))
for width in (6, 12, 18):
    for _ in range(2):
        net = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 2))
        print(width, fit(net.parameters(), lambda net=net: F.cross_entropy(net(x), y)))
