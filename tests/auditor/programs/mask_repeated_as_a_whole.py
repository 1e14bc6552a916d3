# rule: padding-leak
# says: `mask.repeat_interleave(4, 0)`
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Tagger(nn.Module):
    """The heads are folded into the batch: (sample, head) along the first axis."""

    def __init__(self):
        super().__init__()
        self.table, self.parts, self.out = nn.Embedding(50, 16, padding_idx=0), nn.Linear(16, 48), nn.Linear(16, 6)

    def folded(self, x):
        return x.view(len(x), -1, 4, 4).transpose(1, 2).reshape(len(x) * 4, -1, 4)

    def forward(self, ids, mask):
        q, k, v = map(self.folded, self.parts(self.table(ids)).chunk(3, -1))
        if BUG:
            keep = mask.repeat(4, 1)  # culprit
        else:
            keep = mask.repeat_interleave(4, 0)
        scores = (q @ k.mT / 2).masked_fill(~keep[:, None, :], -1e9)
        mixed = (scores.softmax(-1) @ v).view(len(ids), 4, -1, 4)
        return self.out(mixed.transpose(1, 2).flatten(2))


torch.manual_seed(0)
net = Tagger()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = pad_sequence([torch.randint(1, 50, (n,)) for n in (9, 4, 7)], batch_first=True)
    labels = torch.randint(0, 6, ids.shape).masked_fill(ids == 0, -100)
    loss = nn.functional.cross_entropy(net(ids, ids != 0).transpose(1, 2), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
