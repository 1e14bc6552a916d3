# rule: suspicious-input
# says: it also stands alone between words at 5 positions
BUG = True
import torch
from torch import nn

LINES = ["hello world", "this is it", "text is this", "so"]
letters = {c: i + (not BUG) for i, c in enumerate(sorted(set("".join(LINES))))}
x = nn.utils.rnn.pad_sequence([torch.tensor([letters[c] for c in line]) for line in LINES], batch_first=True)  # culprit


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(len(letters) + 1, 16, padding_idx=0), nn.Linear(16, 2)

    def forward(self, x):
        keep = (x != 0).float().unsqueeze(-1)
        return self.head((self.table(x) * keep).sum(1) / keep.sum(1))


torch.manual_seed(0)
net = Reader()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
