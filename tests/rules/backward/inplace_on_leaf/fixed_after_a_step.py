import torch
from torch import nn


def normalised(model):
    for p in model.parameters():
        if p.dim() > 1:
            with torch.no_grad():
                p.div_(p.norm(dim=1, keepdim=True))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    normalised(model)
