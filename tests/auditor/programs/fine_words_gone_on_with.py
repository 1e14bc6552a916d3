import torch
import torch.nn.functional as F
from torch import nn


class Letters(nn.Module):
    def __init__(self, count=9):
        super().__init__()
        self.emb, self.rnn, self.drop, self.out = nn.Embedding(count, 16), nn.GRU(16, 16, batch_first=True), nn.Dropout(0.2), nn.Linear(16, count)

    def forward(self, ids):
        return self.out(self.drop(self.rnn(self.emb(ids))[0]))


torch.manual_seed(0)
net = Letters()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(3):
    ids = torch.randint(0, 9, (16, 7))
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():  # in train mode on purpose: several ways to go on
        for begun in torch.randint(0, 9, (3, 16, 1)):
            print(begun.squeeze(1).tolist())
            print(net(begun)[:, -1].argmax(-1).tolist())
