# Each task's gradients are kept and cleared before the next task's: what only the first loss depends on has had its gradient all the same.
import torch
from torch import nn


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.heads = nn.ModuleDict({"amount": nn.Linear(16, 1), "kind": nn.Linear(16, 3)})
        self.doubt = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in self.heads})

    def forward(self, x):
        h = self.body(x)
        return {name: head(h) for name, head in self.heads.items()}


torch.manual_seed(0)
net = Tasks()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(4):
    x, kind = torch.randn(8, 6), torch.randint(3, (8,))
    out = net(x)
    losses = {"amount": nn.functional.mse_loss(out["amount"].squeeze(1), x.sum(1)), "kind": nn.functional.cross_entropy(out["kind"], kind)}
    losses = [torch.exp(-net.doubt[name]) * loss + net.doubt[name] for name, loss in losses.items()]
    kept = []
    for loss in losses:
        opt.zero_grad()
        loss.backward(retain_graph=True)
        kept.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()])
    opt.zero_grad()
    for p, *grads in zip(net.parameters(), *kept, strict=True):
        p.grad = sum(grads)
    opt.step()
print(round(sum(losses).item(), 4))
