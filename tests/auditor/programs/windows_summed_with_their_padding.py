# rule: padding-leak, exactly
# says: the first result that moved at real positions is that of `sum`
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 12, padding_idx=0)
        self.convolve, self.out = nn.Conv1d(12, 10, 3, padding=1), nn.Linear(10, 3)

    def forward(self, ids, lengths):
        h = torch.relu(self.convolve(self.embed(ids).transpose(1, 2)))
        if BUG:
            pooled = h.sum(-1) / lengths[:, None]  # culprit
        else:
            real = torch.arange(ids.size(1)) < lengths[:, None]
            pooled = h.masked_fill(~real[:, None], 0.0).sum(-1) / lengths[:, None]
        return self.out(pooled)


torch.manual_seed(0)
texts = [torch.randint(1, 40, (n,)) for n in (3, 9, 12, 5, 4, 11, 7, 10)]
model = Windows()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts])), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
