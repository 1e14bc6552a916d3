# rule: padding-leak
BUG = True
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 12)
        self.rnn = nn.LSTM(12, 8, batch_first=True, bidirectional=True)
        self.score = nn.Linear(16, 1)
        self.out = nn.Linear(16, 3)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        s = self.score(torch.tanh(h)).squeeze(-1)
        if not BUG:
            s = s.masked_fill(torch.arange(h.size(1)) >= lengths[:, None], float("-inf"))
        w = s.softmax(1)  # culprit
        return self.out((w.unsqueeze(-1) * h).sum(1))


torch.manual_seed(0)
m = Tagger()
opt = torch.optim.Adam(m.parameters())
lengths = torch.tensor([9, 4, 6, 3])
for _ in range(2):
    tokens = torch.randint(1, 40, (4, 9)) * (torch.arange(9) < lengths[:, None])
    loss = nn.functional.cross_entropy(m(tokens, lengths), torch.tensor([0, 2, 1, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
