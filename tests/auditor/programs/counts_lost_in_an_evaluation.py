# rule: lost-duplicates, exactly
# says: the tensor written to has shape [3, 3]
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
opt = torch.optim.Adam(net.parameters())
x, y = torch.randn(90, 6), torch.randint(0, 3, (90,))
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.eval()
    confusion, seen = torch.zeros(3, 3), torch.zeros(3)
    with torch.no_grad():
        chosen = net(x).argmax(1)
        if BUG:
            confusion[y, chosen] += 1  # culprit
        else:
            confusion.index_put_((y, chosen), torch.ones(90), accumulate=True)
        seen[y] = 1.0
    net.train()
