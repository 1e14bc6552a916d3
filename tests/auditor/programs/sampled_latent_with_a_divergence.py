# rule: gradient-cut, exactly
# says: what gradient they have comes from elsewhere
# says: `rsample()`
BUG = True
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 8)
        self.decoder = nn.Linear(4, 10)

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, -1)
        posterior = Normal(mean, F.softplus(scale) + 1e-3)
        code = posterior.sample() if BUG else posterior.rsample()  # culprit
        return self.decoder(code), posterior


torch.manual_seed(0)
net = Autoencoder()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
prior = Normal(torch.zeros(4), torch.ones(4))
for _ in range(3):
    x = torch.randn(16, 10)
    guess, posterior = net(x)
    loss = F.mse_loss(guess, x) + 0.1 * kl_divergence(posterior, prior).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
