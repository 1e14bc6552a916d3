# rule: causal-leak
BUG = True
import torch
from torch import nn

V = 50


class WordLM(nn.Module):
    def __init__(self, width=16, hidden=12):
        super().__init__()
        self.encoder = nn.Embedding(V, width)
        self.drop = nn.Dropout(0.2)
        self.rnn = nn.LSTM(width, hidden, 2, bidirectional=BUG, dropout=0.2)  # culprit
        self.decoder = nn.Linear(hidden * (2 if BUG else 1), V)

    def forward(self, data):
        out, _ = self.rnn(self.drop(self.encoder(data)))  # culprit
        return self.decoder(self.drop(out))


torch.manual_seed(0)
corpus = torch.randint(0, V, (9 * 40,)).view(9, -1).t().contiguous()  # (time, batch)
model = WordLM()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for start in (0, 12):
    data, target = corpus[start : start + 12], corpus[start + 1 : start + 13].reshape(-1)
    loss = nn.functional.cross_entropy(model(data).view(-1, V), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
