import torch
from torch import nn
# the gradient buffers are decayed and added to: momentum kept where the gradients are
torch.manual_seed(0)
m = nn.Linear(5, 1); opt = torch.optim.SGD(m.parameters(), lr=.01)
for i in range(6):
    for p in m.parameters():
        if p.grad is not None:
            p.grad.mul_(.9)
    x = torch.randn(32, 5); loss = (m(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    opt.step()
    print(i, loss.item())
