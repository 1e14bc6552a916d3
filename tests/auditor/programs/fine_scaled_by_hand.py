import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
scaler.scale(torch.zeros(()))
for number in range(8):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 3, (16,))) / 2
    (loss * scaler.get_scale()).backward()
    if number % 2:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
