# rule: causal-leak
# says: built here with `padding=1`
BUG = True
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 16), nn.Linear(16, 40)
        self.convolutions = nn.Sequential(
            nn.ConstantPad1d((0 if BUG else 2, 0), 0.0),
            weight_norm(nn.Conv1d(16, 16, 3, padding=1 if BUG else 0)),  # culprit
            nn.ReLU(),
        )

    def forward(self, ids):
        return self.out(self.convolutions(self.table(ids).mT).mT)


torch.manual_seed(0)
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = torch.randint(0, 40, (5, 12))
    loss = nn.functional.cross_entropy(net(ids[:, :-1]).mT, ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
