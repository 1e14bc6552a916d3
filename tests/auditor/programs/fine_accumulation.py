import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
opt = torch.optim.AdamW(model.parameters())
X, Y = torch.randn(64, 10), torch.randint(0, 3, (64,))
for epoch in range(3):
    model.train()
    for i in range(0, 64, 8):
        out = model(X[i:i+8])
        loss = F.cross_entropy(out, Y[i:i+8]) / 4
        loss.backward()
        with torch.no_grad():
            acc = (out.argmax(1) == Y[i:i+8]).float().mean().item()
        if (i // 8) % 4 == 3:
            opt.step()
            opt.zero_grad()
    model.eval()
    with torch.no_grad():
        print((model(X).argmax(1) == Y).float().mean().item())
