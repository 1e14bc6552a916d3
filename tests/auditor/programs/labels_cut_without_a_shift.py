# rule: label-shift
BUG = True
import torch
from torch import nn

V = 50


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(V, 16), nn.GRU(16, 16), nn.Linear(16, V)

    def forward(self, data):  # (time, batch)
        return self.out(self.rnn(self.table(data))[0])


def get_batch(source, start, steps=10):
    ahead = 0 if BUG else 1
    return source[start : start + steps], source[start + ahead : start + ahead + steps].reshape(-1)  # culprit


torch.manual_seed(0)
corpus = torch.randint(0, V, (7 * 40,)).view(7, -1).t().contiguous()
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for start in (0, 10):
    data, target = get_batch(corpus, start)
    loss = nn.functional.cross_entropy(model(data).view(-1, V), target)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
