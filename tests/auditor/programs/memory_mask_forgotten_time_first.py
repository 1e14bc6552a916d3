# rule: padding-leak, exactly
# says: of sample
# says: memory_key_padding_mask
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD = 1


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16), nn.Embedding(30, 16)
        self.place = nn.Parameter(torch.randn(20, 1, 16))
        self.transformer = nn.Transformer(16, 2, 1, 1, 32)
        self.out = nn.Linear(16, 30)

    def forward(self, src, trg, src_padding, trg_padding, memory_padding):  # (time, batch), masks (batch, time)
        later = nn.Transformer.generate_square_subsequent_mask(trg.size(0)) < 0
        a, b = self.source(src) + self.place[: src.size(0)], self.target(trg) + self.place[: trg.size(0)]
        h = self.transformer(a, b, tgt_mask=later, src_key_padding_mask=src_padding, tgt_key_padding_mask=trg_padding, memory_key_padding_mask=memory_padding)  # culprit
        return self.out(h)


def sentences(lengths):
    return pad_sequence([torch.randint(2, 30, (n,)) for n in lengths], padding_value=PAD)


torch.manual_seed(0)
m = Translator()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    src, trg = sentences([5, 8, 3, 6]), sentences([6, 4, 7, 5])
    given = trg[:-1]
    hidden = (src == PAD).T
    scores = m(src, given, hidden, (given == PAD).T, None if BUG else hidden)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), trg[1:].flatten(), ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    opt.step()
