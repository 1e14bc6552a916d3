import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # a fused step is called also when the scaler found an overflow
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**60)
for step in range(5):
    x, y = torch.randn(32, 20, device="cuda"), torch.randint(0, 3, (32,), device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(scaler.get_scale())
