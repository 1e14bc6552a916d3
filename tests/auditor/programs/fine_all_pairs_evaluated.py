# Evaluations that compare all pairs on purpose, or a table of choices with a column of labels.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
opt = torch.optim.Adam(net.parameters(), 1e-3)


@torch.no_grad()
def evaluate(x, y):
    net.eval()
    logits = net(x)
    top = logits.topk(3, dim=1)[1]
    hits = (top == y.view(-1, 1)).any(1).float().mean().item()
    best = logits.argmax(1)
    share = (best.unsqueeze(1) == torch.arange(len(x))).float().mean().item()
    gap = (logits.amax(1)[:, None] - y[None].float()).abs().mean().item()
    net.train()
    return f"{hits:.3f} {share:.3f} {gap:.3f}"


for _ in range(3):
    x = torch.randn(16, 8)
    y = x[:, :4].argmax(1)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(evaluate(x, y))
