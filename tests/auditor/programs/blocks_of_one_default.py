# rule: shared-layers, exactly
# says: the default value of `norm`
import torch
from torch import nn

BUG = True


class Block(nn.Module):
    def __init__(self, width, norm=nn.LayerNorm(12), act=nn.GELU()):  # culprit
        super().__init__()
        self.norm, self.act = norm if BUG else nn.LayerNorm(width), act
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + self.act(self.inner(self.norm(x)))


torch.manual_seed(0)
model = nn.Sequential(*[Block(12) for _ in range(3)], nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 12)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
