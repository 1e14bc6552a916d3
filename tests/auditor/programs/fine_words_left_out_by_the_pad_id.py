import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Reader(nn.Module):
    def __init__(self, words=60, width=32):
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=0)
        self.states = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, words)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.states(packed)[0], batch_first=True)
        return self.head(h).log_softmax(-1)


torch.manual_seed(0)
model = Reader()
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
lengths = torch.tensor([12, 7, 9, 5])
ids = torch.randint(3, 60, (4, 12)) * (torch.arange(12) < lengths[:, None])
hidden = (torch.rand(ids.shape) < 0.3) & (ids != 0)
hidden[:, 1] = True
labels = torch.where(hidden, ids, 0)  # what is not hidden is not asked for
criterion = nn.NLLLoss(ignore_index=0)
for _ in range(2):
    loss = criterion(model(ids.masked_fill(hidden, 1), lengths).transpose(1, 2), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
