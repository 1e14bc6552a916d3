# rule: batch-mixing
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.GRU(6, 8, batch_first=True)
        self.o = nn.Linear(8, 3)
    def forward(self, x, lengths):
        lengths, order = lengths.sort(descending=True)
        p = nn.utils.rnn.pack_padded_sequence(x[order], lengths.cpu(), batch_first=True)  # culprit
        _, h = self.r(p)
        h = h[-1]
        if not BUG:
            h = h[order.argsort()]
        return self.o(h)
m = Net()
opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    loss = F.cross_entropy(m(torch.randn(4, 9, 6), torch.tensor([4, 9, 6, 7])), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
