# rule: silent-broadcast
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, pin_memory=True)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
for epoch in range(2):
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        predicted = model(inputs)
        if not BUG:
            predicted = predicted.squeeze(1)
        error = (predicted - targets) ** 2  # culprit
        loss = error.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(torch.isfinite(loss).item())
