# rule: lost-duplicates, exactly
import torch
import torch.nn.functional as F
from torch import nn

BUG = True


class Pointer(nn.Module):
    def __init__(self, words=30, width=12):
        super().__init__()
        self.words, self.emb, self.rnn, self.query = words, nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, width)

    def forward(self, source):
        h, last = self.rnn(self.emb(source))
        share = torch.softmax((h @ self.query(last[0]).unsqueeze(-1)).squeeze(-1), dim=-1)
        none = torch.zeros(len(source), self.words)
        chance = none.scatter(1, source, share) if BUG else none.scatter_add(1, source, share)  # culprit
        return (chance + 1e-9).log()


torch.manual_seed(0)
net = Pointer()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    source = torch.randint(1, 30, (8, 20))
    loss = F.nll_loss(net(source), source[:, 3])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
