# rule: batch-mixing, exactly
# says: built here with `dim=0`: it runs over the samples
import torch
from torch import nn

BUG = True


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 3)
        self.softmax = nn.Softmax(dim=0 if BUG else -1)  # culprit
        self.experts = nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])

    def forward(self, x):
        weights = self.softmax(self.score(x))  # culprit
        return (torch.stack([expert(x) for expert in self.experts], -1) * weights[:, None]).sum(-1)


torch.manual_seed(0)
model = Mixture()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    x = torch.randn(9, 6)
    loss = (model(x) - x[:, :2]).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
