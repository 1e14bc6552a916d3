# rule: batch-mixing
# says: the layer has `batch_first=True`: it takes the second axis for time
BUG = True
import torch
from torch import nn


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(27, 12), nn.Linear(16, 27)
        self.gru = nn.GRU(12, 16, batch_first=BUG)  # culprit

    def forward(self, text):
        return self.out(self.gru(self.table(text))[0])


torch.manual_seed(0)
streams = torch.randint(0, 27, (600,)).view(6, 100).t().contiguous()  # time first
net = Letters()
opt = torch.optim.Adam(net.parameters())
for at in (0, 20):
    loss = nn.functional.cross_entropy(net(streams[at : at + 20]).view(-1, 27), streams[at + 1 : at + 21].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
