# rule: gradient-cut
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
first, second = nn.Linear(6, 1), nn.Linear(6, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for _ in range(4):
    x = torch.randn(12, 6)
    errors = [(first(part).squeeze(-1) - part[:, 0]).pow(2).mean() for part in x.chunk(3)]
    main = (second(x).squeeze(-1) - x[:, 1]).pow(2).mean()
    if BUG:
        aside = sum(error.item() for error in errors)  # culprit
    else:
        aside = sum(errors)
    loss = main + aside
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
