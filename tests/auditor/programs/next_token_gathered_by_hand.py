# rule: label-shift
# says: the labels are not shifted
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 50)

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


def loss_of(scores, ids, lengths):
    if not BUG:
        scores, ids, lengths = scores[:, :-1], ids[:, 1:], lengths - 1
    counted = ids.masked_fill(ids == 0, -100)
    chosen = scores.log_softmax(-1).gather(2, counted.clamp(min=0).unsqueeze(2)).squeeze(2)  # culprit
    mask = torch.arange(chosen.size(1)) < lengths[:, None]
    return -(chosen * mask).sum() / mask.sum()


torch.manual_seed(0)
lengths = torch.tensor([12, 6, 9, 7])
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = torch.randint(1, 50, (4, 12)) * (torch.arange(12) < lengths[:, None])
    loss = loss_of(net(ids), ids, lengths)
    opt.zero_grad()
    loss.backward()
    opt.step()
