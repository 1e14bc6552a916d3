# rule: optimizer-parameters, exactly
BUG = True
import copy

import torch
from torch import nn

torch.manual_seed(0)
pretrained = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 2))
student = copy.deepcopy(pretrained)  # culprit
opt = torch.optim.SGD((pretrained if BUG else student).parameters(), lr=0.05, momentum=0.9)  # culprit
for step in range(4):
    x, y = torch.randn(16, 7), torch.randint(0, 2, (16,))
    logits = student(x)
    with torch.no_grad():
        soft = pretrained(x).softmax(-1)
    loss = nn.functional.cross_entropy(logits, y) + nn.functional.kl_div(logits.log_softmax(-1), soft, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
