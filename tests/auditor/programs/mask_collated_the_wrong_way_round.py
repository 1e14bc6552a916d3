# rule: suspicious-input
# says: `attention` is made here, True at padding
# says: Make `attention` the other way round
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
    attention = (tokens == 0) if BUG else (tokens != 0)  # culprit
    return tokens, attention, torch.tensor([label for _, label in rows])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(40, 16), nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, tokens, attention):
        q, k, v = self.qkv(self.table(tokens)).chunk(3, -1)
        scores = (q @ k.mT / 4).masked_fill(~attention[:, None, :], float("-inf"))
        keep = attention.unsqueeze(-1).float()
        return self.out(((scores.softmax(-1) @ v) * keep).sum(1) / keep.sum(1).clamp(min=1))


torch.manual_seed(0)
rows = [(torch.randint(1, 40, (n,)), n % 3) for n in (9, 4, 7, 5, 8, 3, 6, 9)]
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for tokens, attention, labels in DataLoader(rows, batch_size=4, collate_fn=collate):
    loss = nn.functional.cross_entropy(net(tokens, attention), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
