# rule: softmax-axis, exactly
# says: the layer gets its axis here
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5),
    nn.LogSoftmax(dim=0 if BUG else 1),  # culprit
)
criterion = nn.NLLLoss()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    x, y = torch.randn(8, 12), torch.randint(0, 5, (8,))
    loss = criterion(model(x), y)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
