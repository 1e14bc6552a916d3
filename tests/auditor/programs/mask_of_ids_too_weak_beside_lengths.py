# rule: padding-leak
# says: the mask made of the ids hides nothing
# says: too little to hide anything
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

HIDE = -1 if BUG else -1e9


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16, padding_idx=0), nn.Embedding(30, 16, padding_idx=0)
        self.encoder, self.decoder, self.out = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True), nn.Linear(32, 30)

    def forward(self, src, lengths, tgt):
        packed = pack_padded_sequence(self.source(src), lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed, state = self.encoder(packed)
        keys, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.size(1))
        queries, _ = self.decoder(self.target(tgt), state)
        mask = src != 0
        scores = queries @ keys.transpose(1, 2) + (1 - mask[:, None, :].float()) * HIDE  # culprit
        return self.out(torch.cat([queries, scores.softmax(-1) @ keys], -1))


torch.manual_seed(0)
lengths = torch.tensor([8, 4, 6])
src, tgt = torch.randint(1, 30, (3, 8)) * (torch.arange(8) < lengths[:, None]), torch.randint(1, 30, (3, 6))
net = Translator()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(src, lengths, tgt[:, :-1]).transpose(1, 2), tgt[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
