# rule: view-for-transpose
# says: predictions and labels are flattened in different orders
# says: compares row k of the predictions [9, 4, 6] with entry k of the labels [4, 9]
BUG = True
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(50, 12), nn.LSTM(12, 8, bidirectional=True), nn.Linear(16, 6)

    def forward(self, words):
        return self.out(self.rnn(self.table(words))[0])


torch.manual_seed(0)
words, tags = torch.randint(0, 50, (9, 4)), torch.randint(0, 6, (4, 9))
net = Tagger()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    scores = net(words)
    labels = (tags if BUG else tags.t()).reshape(-1)  # culprit
    loss = nn.functional.cross_entropy(scores.view(-1, 6), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
