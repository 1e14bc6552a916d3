"""A tagger of single sentences: ids without an axis of samples, of which the model makes a batch of one, time first."""

import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.tags = nn.Embedding(20, 6), nn.LSTM(6, 6), nn.Linear(6, 3)

    def forward(self, sentence):
        states, _ = self.lstm(self.words(sentence).view(len(sentence), 1, -1))
        return F.log_softmax(self.tags(states.view(len(sentence), -1)), dim=1)


torch.manual_seed(1)
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for sentence, tags in (([3, 7, 1, 3, 9], [0, 1, 2, 0, 1]), ([4, 2, 8, 5], [1, 2, 0, 1])):
    model.zero_grad()
    loss = F.nll_loss(model(torch.tensor(sentence)), torch.tensor(tags))
    loss.backward()
    optimizer.step()
