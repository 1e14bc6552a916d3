import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
nets = [nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]


def by_grad(net, x, y):
    for _ in range(5):
        x = x.detach().requires_grad_()
        x = x + 0.1 * torch.autograd.grad(F.cross_entropy(net(x), y), x)[0].sign()
    return x.detach()


def by_backward(net, x, y):
    x = x.clone().requires_grad_()
    F.cross_entropy(net(x), y).backward()
    return (x + 0.1 * x.grad.sign()).detach()


for net, attack in zip(nets, (by_grad, by_backward)):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        net.eval()
        x = attack(net, x, y)
        net.train()
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    print(loss.item())
