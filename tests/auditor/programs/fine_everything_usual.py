import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.1), nn.MaxPool2d(2))
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(4 * 16, 10), nn.Dropout(0.2), nn.Linear(10, 3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        print("forward", self.calls)
        return self.fc(self.conv(x))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, s / 4))
x, y = torch.rand(12, 1, 8, 8), torch.arange(12) % 3
for epoch in range(2):
    net.train()
    for i in range(0, 12, 4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x[i : i + 4]), y[i : i + 4], label_smoothing=0.1)
        (loss / 2).backward()
        if i % 8 == 4:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        print((net(x).argmax(1) == y).float().mean().item(), torch.rand(1).item())
