# says: ran once
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

spread = nn.Parameter(torch.zeros(3))
encoder = nn.Linear(5, 3)
optimizer = torch.optim.SGD([spread, *encoder.parameters()], lr=0.1)


def make_prior():
    return Normal(torch.zeros(3), spread.exp())  # culprit: create


def distance(x, prior):
    return kl_divergence(Normal(encoder(x), 1.0), prior).mean()  # culprit: operand


prior = make_prior()  # culprit: create
for _ in range(3):
    loss = distance(torch.randn(7, 5), prior)
    optimizer.zero_grad()
    loss.backward()  # culprit: call
    optimizer.step()
