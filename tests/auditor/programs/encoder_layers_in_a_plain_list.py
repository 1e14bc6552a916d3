# rule: unregistered-parameters, exactly
BUG = True
import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, d=32, depth=3):
        super().__init__()
        layers = [nn.TransformerEncoderLayer(d, 4, 64, batch_first=True) for _ in range(depth)]
        self.layers = layers if BUG else nn.ModuleList(layers)  # culprit
        self.norm = nn.LayerNorm(d)

    def forward(self, x, pad):
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=pad)  # culprit
        return self.norm(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(50, 32, padding_idx=0)
        self.s = Stack()
        self.o = nn.Linear(32, 3)

    def forward(self, ids):
        pad = ids == 0
        h = self.s(self.e(ids), pad).masked_fill(pad[..., None], 0.0)
        return self.o(h.sum(1) / (~pad).sum(1, keepdim=True))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    ids = nn.utils.rnn.pad_sequence([torch.randint(1, 50, (n,)) for n in (7, 4, 9, 5)], True)
    loss = nn.functional.cross_entropy(net(ids), torch.tensor([0, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
