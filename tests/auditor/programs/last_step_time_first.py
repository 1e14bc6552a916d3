# rule: padding-leak, exactly
# says: rows of padding to `text`
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(50, 12, padding_idx=0), nn.GRU(12, 10), nn.Linear(10, 3)

    def forward(self, text, lengths):  # (time, batch)
        states, _ = self.rnn(self.table(text))
        last = states[-1] if BUG else states[lengths - 1, torch.arange(text.size(1))]  # culprit
        return self.out(last)


torch.manual_seed(0)
m = Classifier()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    lengths = torch.tensor([8, 3, 6, 5, 7])
    text = pad_sequence([torch.randint(1, 50, (int(n),)) for n in lengths])
    loss = nn.functional.cross_entropy(m(text, lengths), torch.randint(0, 3, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
