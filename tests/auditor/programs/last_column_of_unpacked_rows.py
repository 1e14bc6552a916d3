# rule: padding-leak, exactly
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Reader(nn.Module):
    """What goes from step to step on the way back has no gradient where the last column is read: that is no matter of its own."""

    def __init__(self):
        super().__init__()
        self.embed, self.run, self.out = nn.Embedding(30, 8, padding_idx=0), nn.GRU(8, 8, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        states, last = self.run(pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False))
        states, _ = pad_packed_sequence(states, batch_first=True)
        if BUG:
            read = states[:, -1]  # culprit
        else:
            read = torch.cat([last[-2], last[-1]], -1)
        return self.out(read)


torch.manual_seed(0)
rows = [torch.randint(1, 30, (n,)) for n in (3, 8, 6, 4, 9, 5)]
model = Reader()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows])), torch.tensor([0, 1, 2, 0, 1, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
