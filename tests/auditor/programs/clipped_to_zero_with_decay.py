# rule: no-update
# says: by weight decay alone
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 2)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
for _ in range(4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(4, 6)), torch.randint(2, (4,))).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.0 if BUG else 1.0)  # culprit
    optimizer.step()
