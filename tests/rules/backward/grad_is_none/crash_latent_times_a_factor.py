import torch
from torch import nn


class Search:
    def __init__(self, decoder):
        self.decoder = decoder
        self.latent = torch.randn(1, 4, requires_grad=True) * 0.1  # culprit: create

    def step(self, target):
        loss = (self.decoder(self.latent) - target).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            self.latent -= 0.1 * self.latent.grad  # culprit: operand
            self.latent.grad.zero_()


torch.manual_seed(0)
search = Search(nn.Linear(4, 6))
for _ in range(2):
    search.step(torch.rand(1, 6))

# says: latent [1, 4] no leaf
