# rule: batch-mixing, exactly
import torch
from torch import nn
torch.manual_seed(0)
BUG = True


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.ModuleList(nn.Linear(6, 1) for _ in range(3))
        self.head = nn.Linear(18, 2)

    def forward(self, x):
        out = torch.zeros(x.shape[0], 3, 6)
        for number, score in enumerate(self.scores):
            weight = score(x).squeeze(-1).softmax(0 if BUG else 1)  # culprit
            out[:, number] = (weight.unsqueeze(-1) * x).sum(1)
        return self.head(out.flatten(1))


net = Heads()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 5, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
