# rule: padding-leak, exactly
# says: of its 8 x 9 places that no real pixel of row 1 of `pixels` belongs to
# says: the call gives no `memory_key_padding_mask`
BUG = True
import torch
from torch import nn


def nested(images):
    h, w = max(i.shape[1] for i in images), max(i.shape[2] for i in images)
    batch = torch.zeros(len(images), 3, h, w)
    mask = torch.ones(len(images), h, w, dtype=torch.bool)
    for k, im in enumerate(images):
        batch[k, :, : im.shape[1], : im.shape[2]] = im
        mask[k, : im.shape[1], : im.shape[2]] = False
    return batch, mask


class Detr(nn.Module):
    def __init__(self, d=32, queries=5, classes=4):
        super().__init__()
        self.backbone = nn.Conv2d(3, d, 4, stride=4)
        self.row, self.col = nn.Embedding(30, d), nn.Embedding(30, d)
        self.encoder = nn.TransformerEncoderLayer(d, 4, 64, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(d, 4, 64, batch_first=True)
        self.queries = nn.Embedding(queries, d)
        self.cls = nn.Linear(d, classes)

    def forward(self, pixels, pixel_mask):
        f = self.backbone(pixels)
        b, d, h, w = f.shape
        mask = pixel_mask[:, ::4, ::4]
        pos = self.row.weight[:h, None] + self.col.weight[None, :w]
        src = f.flatten(2).transpose(1, 2) + pos.flatten(0, 1)
        pad = mask.flatten(1)
        mem = self.encoder(src, src_key_padding_mask=pad)
        q = self.queries.weight.expand(b, -1, -1)
        out = self.decoder(q, mem, memory_key_padding_mask=None if BUG else pad)  # culprit
        return self.cls(out)


torch.manual_seed(0)
net = Detr()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for it in range(3):
    sizes = [(32, 24), (20, 36), (28, 16)]
    x, m = nested([torch.rand(3, *s) for s in sizes])
    out = net(x, m)
    loss = nn.functional.cross_entropy(out.flatten(0, 1), torch.randint(0, 4, (15,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
