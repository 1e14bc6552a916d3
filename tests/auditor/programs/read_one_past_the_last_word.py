# rule: padding-leak, exactly
# says: in row 1 position 6 is read, and the last that holds data is position 5
# says: the positions to be read are made here
# says: Read each row at `length - 1`
BUG = True
import torch
from torch import nn


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(70, 16, padding_idx=0)
        self.r = nn.LSTM(16, 20, batch_first=True)
        self.o = nn.Linear(20, 2)

    def forward(self, ids, lengths):
        h, _ = self.r(self.e(ids))
        idx = lengths if BUG else lengths - 1
        idx = idx.clamp(max=ids.size(1) - 1).view(-1, 1, 1).expand(-1, 1, h.size(2))  # culprit
        return self.o(h.gather(1, idx).squeeze(1))  # culprit


torch.manual_seed(0)
net = Sentiment()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    n = torch.tensor([10, 6, 3, 8, 5])
    ids = torch.randint(1, 70, (5, 10)) * (torch.arange(10)[None] < n[:, None])
    loss = nn.functional.cross_entropy(net(ids, n), torch.tensor([0, 1, 0, 1, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
