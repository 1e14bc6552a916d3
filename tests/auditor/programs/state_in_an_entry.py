# rule: nothing-loaded, exactly
# says: `checkpoint['model']`
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
checkpoint = {"epoch": 3, "model": {name: value.clone() for name, value in net.state_dict().items()}}
if BUG:
    net.load_state_dict(checkpoint, strict=False)  # culprit
else:
    net.load_state_dict(checkpoint["model"])
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
