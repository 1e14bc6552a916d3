import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy, mse_loss, one_hot

torch.manual_seed(0)
coder = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20), nn.Sigmoid())
chooser = nn.Sequential(nn.Linear(20, 3), nn.Softmax(-1))
opt = torch.optim.SGD([*coder.parameters(), *chooser.parameters()], lr=1e-2)
x, y = torch.rand(9, 20), one_hot(torch.arange(9) % 3, 3).float()
for _ in range(2):
    loss = mse_loss(coder(x), x) + binary_cross_entropy(chooser(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
