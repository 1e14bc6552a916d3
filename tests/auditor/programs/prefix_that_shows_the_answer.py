# rule: causal-leak
# says: this mask shows some positions what lies ahead of them
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.place, self.out = nn.Embedding(50, 16), nn.Embedding(20, 16), nn.Linear(16, 50)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1)

    def forward(self, ids, prompts):
        at = torch.arange(ids.size(1))
        prompt = at < prompts[:, None]
        both = prompt[:, :, None] if BUG else prompt[:, :, None] & prompt[:, None, :]
        seen = (at[:, None] >= at) | both  # culprit
        return self.out(self.layers(self.table(ids) + self.place(at), mask=~seen.repeat_interleave(2, 0)))


torch.manual_seed(0)
prompts = torch.tensor([4, 6, 3, 5, 4])
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = torch.randint(0, 50, (5, 14))
    labels = ids.masked_fill(torch.arange(14) < prompts[:, None], -100)
    loss = nn.functional.cross_entropy(net(ids, prompts)[:, :-1].transpose(1, 2), labels[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
