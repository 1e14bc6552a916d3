# rule: label-shift
# says: the labels are shifted twice
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 60)

    def forward(self, ids, labels):
        scores = self.out(self.rnn(self.table(ids))[0])
        if BUG:
            scores = scores[:, :-1]
            labels = labels[:, 1:]  # culprit
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def collate(rows):
    parts = [{"ids": row[:-1], "labels": row[1:]} for row in rows]
    fill = {"ids": 0, "labels": -100}
    return {name: nn.utils.rnn.pad_sequence([part[name] for part in parts], True, fill[name]) for name in fill}


torch.manual_seed(0)
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for batch in DataLoader([torch.randint(3, 60, (n,)) for n in (9, 6, 12, 7, 5, 10, 8, 11)], 4, collate_fn=collate):
    loss = net(**batch)
    opt.zero_grad()
    loss.backward()
    opt.step()
