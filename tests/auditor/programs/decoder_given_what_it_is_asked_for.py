# rule: label-shift, exactly
# says: Cut inputs and labels one token apart
BUG = True
import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16), nn.Embedding(30, 16)
        self.encoder, self.decoder, self.out = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, src, given):
        return self.out(self.decoder(self.target(given), self.encoder(self.source(src))[1])[0])


torch.manual_seed(0)
m = Translator()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    src = torch.randint(3, 30, (6, 7))
    tgt = torch.cat([torch.full((6, 1), 1), src.flip(1), torch.full((6, 1), 2)], 1)
    given = tgt[:, 1:] if BUG else tgt[:, :-1]  # culprit
    scores = m(src, given)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), tgt[:, 1:].flatten())  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
