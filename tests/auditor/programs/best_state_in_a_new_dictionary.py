# rule: state-not-copied, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, kept = float("inf"), None
for _ in range(6):
    x = torch.randn(16, 4)
    loss = nn.functional.cross_entropy(model(x), x[:, :2].argmax(1))
    if loss.item() < best:
        best = loss.item()
        if BUG:
            kept = {name: value.cpu() for name, value in model.state_dict().items()}  # culprit
        else:
            kept = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.load_state_dict(kept)  # culprit
