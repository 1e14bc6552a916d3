# rule: batch-mixing
BUG = True
import torch
from torch import nn


class Documents(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 12), nn.GRU(12, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, docs):
        count, sentences, words = docs.shape
        flat = (docs.transpose(0, 1) if BUG else docs).reshape(count * sentences, words)
        read = self.rnn(self.table(flat))[1][0].view(count, sentences, -1)  # culprit
        return self.out(read.mean(1))


torch.manual_seed(0)
net = Documents()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randint(0, 60, (4, 5, 7))), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
