# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn
from torch.distributions import Normal


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, -1)
        code = Normal(mean, spread.exp())
        return self.decoder(code.sample() if BUG else code.rsample())  # culprit


torch.manual_seed(0)
model = Coder()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
x = torch.rand(16, 12)
nn.functional.mse_loss(model(x), x).backward()
optimizer.step()
