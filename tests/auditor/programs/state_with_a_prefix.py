# rule: nothing-loaded, exactly
# says: with `module.` before them
# says: name.removeprefix("module.")
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
state = {f"module.{name}": value for name, value in nn.Linear(4, 8).state_dict().items()}
first = nn.Linear(4, 8)
first.load_state_dict(state if BUG else {name.removeprefix("module."): value for name, value in state.items()}, strict=False)  # culprit
net = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
