# rule: padding-leak, exactly
# says: Changing what the last layer (`self.fc(h)`) gives at padded positions
# says: is kept here for all rows
BUG = True
import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.zeros(tags))

    def log_norm(self, em, mask):
        alpha = self.start + em[:, 0]
        for t in range(1, em.size(1)):
            nxt = torch.logsumexp(alpha[:, :, None] + self.trans + em[:, t, None, :], dim=1)  # culprit
            alpha = nxt if BUG else torch.where(mask[:, t, None], nxt, alpha)  # culprit
        return torch.logsumexp(alpha, -1)

    def score(self, em, tags, mask):
        s = self.start[tags[:, 0]] + em[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, em.size(1)):
            step = self.trans[tags[:, t - 1], tags[:, t]] + em[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            s = s + step * mask[:, t]
        return s

    def forward(self, em, tags, mask):
        return (self.log_norm(em, mask) - self.score(em, tags, mask)).mean()


class Tagger(nn.Module):
    def __init__(self, vocab=60, tags=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 12, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(24, tags)
        self.crf = CRF(tags)

    def forward(self, words, tags, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(words), lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        mask = torch.arange(words.size(1))[None] < lengths[:, None]
        return self.crf(self.fc(h), tags, mask)


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(3):
    lengths = torch.tensor([8, 5, 3, 6])
    words = torch.randint(1, 60, (4, 8)) * (torch.arange(8)[None] < lengths[:, None])
    tags = words % 5
    loss = model(words, tags, lengths)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
