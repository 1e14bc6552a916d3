# Terms without history that are meant: a value put in the place of another, a level to stay above, old weights, a detached term that is only reported.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 3)
old = [p.detach().clone() for p in net.parameters()]
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
level = 0.0
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(3, (8,))
    scores = net(x)
    soft = nn.functional.cross_entropy(scores, y)
    hard = (scores.argmax(1) != y).float().mean()
    near = sum((p - o).pow(2).sum() for p, o in zip(net.parameters(), old, strict=True))
    loss = soft + (hard - soft).data + 0.1 * near - 0.01 * level + near.detach()
    level = 0.9 * level + 0.1 * soft.data
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
