# rule: gradients-kept
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda", init_scale=128.0)
for step in range(6):
    x, y = torch.randn(32, 20, device="cuda"), torch.randn(32, 1, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), y)
    if not BUG:
        optimizer.zero_grad()
    scaler.scale(loss).backward()  # culprit
    scaler.step(optimizer)  # culprit
    scaler.update()
print(torch.isfinite(loss).item())
