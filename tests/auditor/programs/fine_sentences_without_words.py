import torch
from torch import nn


class Documents(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos, self.enc, self.out = nn.Embedding(60, 12, padding_idx=0), nn.Embedding(30, 12), nn.TransformerEncoderLayer(12, 2, 24, 0.0, batch_first=True), nn.Linear(12, 3)

    def forward(self, docs):
        words, x = docs != 0, self.emb(docs) + self.pos(torch.arange(docs.size(2)))
        weights = x.sum(-1).masked_fill(~words, -1e4).softmax(-1)
        return self.out(self.enc((weights.unsqueeze(-1) * x).sum(2), src_key_padding_mask=~words.any(-1)))


torch.manual_seed(0)
model = Documents()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    docs, labels = torch.zeros(4, 5, 7, dtype=torch.long), torch.full((4, 5), -100)
    for i, sentences in enumerate([5, 3, 4, 2]):
        for j in range(sentences):
            words = int(torch.randint(1, 8, ()))
            docs[i, j, :words], labels[i, j] = torch.randint(1, 60, (words,)), int(torch.randint(0, 3, ()))
    loss = nn.functional.cross_entropy(model(docs).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
