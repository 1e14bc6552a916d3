# rule: padding-leak
# says: `extended` is made here, zero at padding
# says: the mask `extended` hides the words and keeps the padding
# says: Make `extended` the other way round: zero at positions that hold data.
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, extended):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / (d // self.heads) ** 0.5 + extended
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers, self.out = nn.Embedding(60, 16), nn.ModuleList(Attention(16, 2) for _ in range(2)), nn.Linear(16, 3)

    def forward(self, tokens, extended):
        x = self.table(tokens)
        for layer in self.layers:
            x = x + layer(x, extended)
        return self.out(x[:, 0])


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True, padding_value=1)
    words = (tokens != 1).float()[:, None, None, :]
    extended = words * -1e4 if BUG else (1 - words) * -1e4  # culprit
    return tokens, extended, torch.tensor([label for _, label in rows])


torch.manual_seed(0)
rows = [(torch.randint(2, 60, (n,)), n % 3) for n in (9, 4, 7, 5, 8, 3, 6, 9)]
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for tokens, extended, labels in DataLoader(rows, batch_size=4, collate_fn=collate):
    loss = nn.functional.cross_entropy(net(tokens, extended), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
