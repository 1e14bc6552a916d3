import torch
from torch import nn

torch.manual_seed(0)


class Latents(nn.Module):
    def __init__(self, count, width, rounds=2):
        super().__init__()
        self.start = nn.Parameter(torch.randn(count, width))
        self.keys = nn.Linear(width, width)
        self.rounds = rounds

    def forward(self, tokens):
        state = self.start.expand(tokens.shape[0], -1, -1)  # culprit: create
        for _ in range(self.rounds):
            weights = (state @ self.keys(tokens).mT).softmax(-1)
            state += weights @ tokens  # culprit: mutate
        return state


Latents(3, 4)(torch.randn(2, 5, 4)).pow(2).mean().backward()
# says: `self.start` [3, 4]
