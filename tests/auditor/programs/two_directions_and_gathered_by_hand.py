# rule: causal-leak
# says: built here with `bidirectional=True`
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.rnn = nn.LSTM(16, 8 if BUG else 16, batch_first=True, bidirectional=BUG)  # culprit

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


torch.manual_seed(0)
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = torch.randint(0, 50, (4, 12))
    chosen = net(ids)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])
    loss = -chosen.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
