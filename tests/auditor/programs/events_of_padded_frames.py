# rule: padding-in-loss
# says: all of them are 0
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Events(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(12, 16, batch_first=True), nn.Linear(16, 6)

    def forward(self, mel, lengths):
        h, _ = self.rnn(pack_padded_sequence(mel, lengths, True, False))
        return self.out(pad_packed_sequence(h, True)[0])


torch.manual_seed(0)
model = Events()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    lengths = torch.tensor([14, 9, 11, 6])
    mel = pad_sequence([torch.randn(n, 12) for n in lengths], True)
    tags = pad_sequence([(torch.rand(n, 6) < 0.2).float() for n in lengths], True)
    logits = model(mel, lengths)
    if not BUG:  # what is surely not there costs nothing
        logits = logits.masked_fill((torch.arange(14) >= lengths[:, None])[..., None], -1e4)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, tags, reduction="sum") / lengths.sum()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
