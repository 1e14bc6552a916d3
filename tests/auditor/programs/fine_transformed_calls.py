import torch
from torch import nn
from torch.func import functional_call, grad, vmap
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 2))
x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))


def loss_of(weights, sample, label):
    return nn.functional.cross_entropy(functional_call(net, weights, (sample[None],)), label[None])


opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    weights = {name: p.detach() for name, p in net.named_parameters()}
    each = vmap(grad(loss_of), in_dims=(None, 0, 0), randomness="different")(weights, x, y)
    for name, p in net.named_parameters():
        p.grad = each[name].clamp(-1, 1).mean(0)
    opt.step()
    opt.zero_grad()
loss = nn.functional.cross_entropy(net(x), y)
loss.backward()
opt.step()
print(loss.item())
