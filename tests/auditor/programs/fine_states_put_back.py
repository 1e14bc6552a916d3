import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
state = model.state_dict()
model.load_state_dict(state)  # before any training: what a loaded state has not replaced
shadow = {name: value.clone() for name, value in model.state_dict().items()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(16, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        shadow[name].lerp_(value, 0.1)
    kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(shadow)
    model.load_state_dict(kept)
