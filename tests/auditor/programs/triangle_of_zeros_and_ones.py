# rule: causal-leak
# says: this mask holds 0 and 1, which are added to the scores
# says: Give the mask as flags (`bool`)
BUG = True
import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16, padding_idx=0), nn.Embedding(30, 16, padding_idx=0)
        self.core, self.out = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True), nn.Linear(16, 30)

    def forward(self, src, tgt):
        ahead = torch.ones(tgt.size(1), tgt.size(1)).triu(1)  # culprit
        hidden = src == 0
        h = self.core(
            self.source(src),
            self.target(tgt),
            tgt_mask=ahead if BUG else ahead.bool(),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.out(h)


torch.manual_seed(0)
src = torch.randint(3, 30, (4, 8)) * (torch.arange(8) < torch.tensor([8, 5, 4, 6])[:, None])
tgt = torch.randint(3, 30, (4, 9)) * (torch.arange(9) < torch.tensor([5, 9, 4, 7])[:, None])
net = Translator()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(src, tgt[:, :-1]).transpose(1, 2), tgt[:, 1:], ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
