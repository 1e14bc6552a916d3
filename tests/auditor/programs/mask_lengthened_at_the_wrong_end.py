# rule: padding-leak
# says: in row 1 the mask hides positions 4 to 8, and the padding stands at positions 5 to 9
BUG = True
import torch
from torch import nn

ENDS = (0, 1) if BUG else (1, 0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.token = nn.Embedding(40, 16), nn.Parameter(torch.randn(1, 1, 16))
        self.attention, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, pad):
        x = torch.cat([self.token.expand(len(ids), -1, -1), self.table(ids)], 1)
        pad = nn.functional.pad(pad, ENDS, value=False)  # culprit
        h, _ = self.attention(x, x, x, key_padding_mask=pad)
        return self.out(h[:, 0])


torch.manual_seed(0)
lengths = torch.tensor([9, 4, 6, 3, 7])
ids = torch.randint(1, 40, (5, 9)) * (torch.arange(9) < lengths[:, None])
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, ids == 0), torch.tensor([0, 1, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
