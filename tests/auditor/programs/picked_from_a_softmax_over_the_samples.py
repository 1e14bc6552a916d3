# rule: softmax-axis
# says: `logits - logits.logsumexp(0 if BUG else 1, keepdim=True)` gives probabilities over axis 0 of [11, 5]
BUG = True
import torch
from torch import nn


def cross_entropy(logits, targets):
    log_p = logits - logits.logsumexp(0 if BUG else 1, keepdim=True)  # culprit
    return -log_p[torch.arange(len(targets)), targets].mean()


torch.manual_seed(0)
net = nn.Linear(7, 5)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(11, 7), torch.arange(11) % 5
for _ in range(2):
    loss = cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
