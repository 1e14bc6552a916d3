# rule: batch-mixing
BUG = True
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class MoE(nn.Module):
    def __init__(self, d=12, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(Expert(d) for _ in range(n))

    def forward(self, x):
        probs = self.gate(x).softmax(0 if BUG else -1)  # culprit
        outs = torch.stack([e(x) for e in self.experts], dim=1)
        return (probs.unsqueeze(-1) * outs).sum(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(10, 12), MoE(), nn.Linear(12, 3)

    def forward(self, x):
        h = self.inp(x)
        return self.out(h + self.moe(h))


torch.manual_seed(0)
model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(16, 10), torch.randint(0, 3, (16,))
    loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
print(loss.item())
