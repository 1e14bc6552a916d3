# rule: scaled-gradients, exactly
# says: never multiplied by it
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 3, (16,)))
    optimizer.zero_grad()
    scaled = scaler.scale(loss)  # culprit
    (loss if BUG else scaled).backward()  # culprit
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)  # culprit
    scaler.update()
