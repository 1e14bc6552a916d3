# rule: padding-leak
# says: between 0 and 1: too little to hide anything
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, ids, mask):
        x = self.table(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 4
        scores = scores + mask if BUG else scores.masked_fill(~mask, -1e9)  # culprit
        return self.out((x + scores.softmax(-1) @ v)[:, 0])


torch.manual_seed(0)
rows = [torch.randint(1, 50, (n,)) for n in (9, 4, 6, 3, 7)]
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = (ids != 0).unsqueeze(1)
    loss = nn.functional.cross_entropy(net(ids, mask), torch.tensor([0, 1, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
