# rule: padding-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Documents(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.table = nn.Embedding(40, width, padding_idx=0)
        self.words, self.sentences = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.word_score, self.sentence_score, self.out = nn.Linear(width, 1), nn.Linear(width, 1), nn.Linear(width, 3)

    def pooled(self, h, score, keep):
        scores = score(torch.tanh(h)).squeeze(-1)
        if keep is not None:
            scores = scores.masked_fill(~keep, -1e4)
        return (scores.softmax(-1).unsqueeze(-1) * h).sum(1)  # culprit

    def forward(self, docs):
        b, s, w = docs.shape
        ids = docs.view(b * s, w)
        sentences = self.pooled(self.words(self.table(ids))[0], self.word_score, ids != 0).view(b, s, -1)
        return self.out(self.pooled(self.sentences(sentences)[0], self.sentence_score, None if BUG else (docs != 0).any(-1)))


torch.manual_seed(0)
docs = torch.randint(1, 40, (4, 6, 7))
docs[:, :, 4:] = 0
for row, sentences in enumerate((6, 3, 4, 2)):
    docs[row, sentences:] = 0
model = Documents()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = F.cross_entropy(model(docs), torch.tensor([0, 1, 2, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
