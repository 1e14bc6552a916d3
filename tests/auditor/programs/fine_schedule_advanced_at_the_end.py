# One epoch: the schedule is advanced after the last step. A second one is made for an optimizer that comes later.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
first, second = torch.optim.Adam(net.parameters(), 0.01), torch.optim.SGD(net.parameters(), 0.1)
schedules = {"second": torch.optim.lr_scheduler.ExponentialLR(second, gamma=0.9)}
schedule = torch.optim.lr_scheduler.ExponentialLR(first, gamma=0.9)
for opt in (first, second):
    for _ in range(5):
        x = torch.randn(16, 6)
        loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    (schedule if opt is first else schedules["second"]).step()
