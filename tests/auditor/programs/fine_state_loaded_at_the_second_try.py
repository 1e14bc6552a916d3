"""Right: what strict=False returns is looked at, and the names are put right; a state that fits in part is loaded in part."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
state = {f"module.{name}": value.clone() for name, value in net.state_dict().items() if name.startswith("0.")}
if net.load_state_dict(state, strict=False).unexpected_keys:
    net.load_state_dict({name.removeprefix("module."): value for name, value in state.items()}, strict=False)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
