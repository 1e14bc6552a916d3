# rule: padding-leak, exactly
# says: `second` is packed with `first_lengths`, the lengths of `first`
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(32, 2)

    def forward(self, first, first_lengths, second, second_lengths):
        one = pack_padded_sequence(self.table(first), first_lengths, batch_first=True, enforce_sorted=False)
        two = pack_padded_sequence(self.table(second), first_lengths if BUG else second_lengths, batch_first=True, enforce_sorted=False)  # culprit
        return self.out(torch.cat([self.rnn(one)[1][-1], self.rnn(two)[1][-1]], 1))


torch.manual_seed(0)
first_lengths, second_lengths = torch.tensor([9, 4, 7, 5]), torch.tensor([3, 9, 6, 8])
first = torch.randint(1, 60, (4, 9)) * (torch.arange(9) < first_lengths[:, None])
second = torch.randint(1, 60, (4, 9)) * (torch.arange(9) < second_lengths[:, None])
net = Pair()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(first, first_lengths, second, second_lengths), torch.tensor([0, 1, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
