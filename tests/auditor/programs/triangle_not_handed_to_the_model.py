# rule: causal-leak
# says: `mask` is not given here
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 16), nn.Linear(16, 40)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)

    def forward(self, ids, mask=None, padding_mask=None):
        return self.out(self.layers(self.table(ids), mask, padding_mask))


torch.manual_seed(0)
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
triangle = nn.Transformer.generate_square_subsequent_mask(11)
for _ in range(2):
    ids = torch.randint(0, 40, (5, 12))
    scores = net(ids[:, :-1]) if BUG else net(ids[:, :-1], triangle)  # culprit
    loss = nn.functional.cross_entropy(scores.transpose(1, 2), ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
