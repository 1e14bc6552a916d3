"""The last position of every row is not read: it is the answer, the end of a sentence, or the odd one of pairs of frames."""

import torch
from torch import nn


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 60)

    def forward(self, ids, lengths):
        return self.out(self.rnn(self.table(ids))[0][torch.arange(len(ids)), lengths - 2])


class WordsOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(60, 16, padding_idx=0), nn.Linear(16, 3)

    def forward(self, ids, mask):
        words = mask.clone()
        words[torch.arange(len(ids)), mask.sum(1) - 1] = False
        return self.out((torch.tanh(self.table(ids)) * words[..., None]).sum(1) / words.sum(1, keepdim=True))


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(10, 3)

    def forward(self, x, lengths):
        pairs = torch.tanh(x[:, : x.size(1) // 2 * 2].unflatten(1, (-1, 2)).flatten(2))
        mask = torch.arange(pairs.size(1)) < (lengths // 2)[:, None]
        return self.out((pairs * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def train(net, labels, *inputs):
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(net(*inputs), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()


torch.manual_seed(0)
lengths, labels = torch.tensor([5, 9, 4, 7, 8]), torch.tensor([0, 1, 2, 0, 1])
real = torch.arange(9) < lengths[:, None]
ids = torch.randint(3, 60, (5, 9)) * real
train(NextItem(), ids[torch.arange(5), lengths - 1], ids, lengths)
train(WordsOnly(), labels, ids.where(torch.arange(9) != lengths[:, None] - 1, 2 * real), real)
odd = torch.tensor([7, 9, 5, 11, 3])
train(Pairs(), labels, torch.randn(5, 11, 5) * (torch.arange(11) < odd[:, None])[..., None], odd)
