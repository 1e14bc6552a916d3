# rule: gradients-discarded, exactly
# says: 3 of 4 gradients are cleared before a step has used them
# says: Adam stepped with the gradient of the last of the 4 backward passes alone
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def backward(loss, optimizer):
    if BUG:
        optimizer.zero_grad()  # culprit
    (loss / 4).backward()


for i in range(16):
    backward(nn.functional.cross_entropy(net(torch.randn(4, 6)), torch.randint(3, (4,))), optimizer)
    if (i + 1) % 4 == 0:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
