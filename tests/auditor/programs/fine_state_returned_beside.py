"""The state that a recurrence ends in has gone through the padding. It is returned for who goes on from there; the loss reads the positions."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 12, padding_idx=0)
        self.rnn = nn.LSTM(12, 16, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, tokens, state=None):
        steps, state = self.rnn(self.emb(tokens), state)
        return self.out(steps), state


tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), 1e-3)
tokens = torch.randint(1, 40, (6, 9))
tokens[1, 5:] = 0
tokens[4, 7:] = 0
tokens[5, 3:] = 0
tags = torch.randint(0, 5, (6, 9)).masked_fill(tokens == 0, -100)
for _ in range(3):
    scores, _ = tagger(tokens)
    loss = F.cross_entropy(scores.transpose(1, 2), tags, ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
