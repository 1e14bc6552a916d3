# A new optimizer for each step, on purpose: what was trained is put back first (test-time adaptation), and steps that keep nothing.
import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
state = copy.deepcopy(net.state_dict())
for batch in torch.randn(5, 32, 6):
    net.load_state_dict(state)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    scores = net(batch)
    entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
    opt.zero_grad()
    entropy.backward()
    opt.step()
    with torch.no_grad():
        print(f"{net(batch).max().item():.4f}")
for batch in torch.randn(5, 32, 6):
    opt = torch.optim.SGD(net.parameters(), 0.01)
    opt.zero_grad()
    nn.functional.cross_entropy(net(batch), batch[:, :3].argmax(1)).backward()
    opt.step()
