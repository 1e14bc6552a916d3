# rule: activation-before-loss, exactly
BUG = True
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn, self.out = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, words):
        hidden, _ = self.rnn(self.embedding(words))
        scores = self.out(hidden)  # culprit
        scores = scores.transpose(1, 2)
        return scores if BUG else scores.log_softmax(1)


torch.manual_seed(0)
criterion = nn.NLLLoss()
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), 1e-3)
for _ in range(2):
    loss = criterion(tagger(torch.randint(30, (4, 9))), torch.randint(5, (4, 9)))  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
