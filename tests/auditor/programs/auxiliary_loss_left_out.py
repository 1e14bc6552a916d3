# rule: unused-parameters
# says: a loss is computed and not trained
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
body, head, probe = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 3), nn.Linear(16, 2)
criterion = nn.CrossEntropyLoss()
opt = torch.optim.SGD([*body.parameters(), *head.parameters(), *probe.parameters()], lr=0.1)
for _ in range(4):
    x = torch.randn(16, 10)
    h = body(x)
    loss = criterion(head(h), x[:, :3].argmax(1))
    aux = criterion(probe(h), (x[:, 0] > 0).long())  # culprit
    if not BUG:
        loss = loss + 0.3 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{loss.item():.4f} {aux.item():.4f}")
