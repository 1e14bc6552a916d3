import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 6, padding_idx=0)
        self.a = nn.GRU(6, 8, batch_first=True, bidirectional=True)
        self.b = nn.GRU(16, 8, batch_first=True)
        self.out = nn.Linear(8, 4)

    def forward(self, ids, n):
        order = n.argsort(descending=True)
        packed = pack_padded_sequence(self.emb(ids[order]), n[order].cpu(), batch_first=True)
        h, _ = pad_packed_sequence(self.a(packed)[0], batch_first=True)
        _, last = self.b(pack_padded_sequence(h, n[order].cpu(), batch_first=True))
        return self.out(last[-1][order.argsort()])


torch.manual_seed(0)
m = Encoder()
opt = torch.optim.SGD(m.parameters(), 0.1)
n = torch.tensor([3, 7, 5, 6, 2])
for _ in range(2):
    ids = torch.randint(1, 30, (5, 7)) * (torch.arange(7) < n[:, None])
    loss = nn.functional.cross_entropy(m(ids, n), torch.tensor([0, 3, 1, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
