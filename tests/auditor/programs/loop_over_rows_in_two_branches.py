# rule: loop-in-step, exactly
# says: 64 rounds
# says: all lines of the loop together made
import torch
from torch import nn

BUG = True


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.a, self.b = nn.Linear(6, 1), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x)).squeeze(1)
        if not BUG:
            return torch.where(gate[:, None] > 0.5, self.a(x), self.b(x)) * gate[:, None]
        rows = []
        for i in range(len(x)):  # culprit
            if gate[i].item() > 0.5:  # culprit
                rows.append(self.a(x[i]) * 2)  # culprit
            else:
                rows.append(self.b(x[i]))  # culprit
        return torch.stack(rows) * gate[:, None]


torch.manual_seed(0)
net = Gated()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x, y = torch.randn(64, 6), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
