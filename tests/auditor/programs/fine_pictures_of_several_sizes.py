import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, d, 3, 2, 1))

    def forward(self, x, m):
        f = self.net(x)
        return f, nn.functional.interpolate(m[:, None].float(), size=f.shape[-2:])[:, 0].bool()


class Detr(nn.Module):
    def __init__(self, d=32, q=6, c=4):
        super().__init__()
        self.bb = Backbone(d)
        self.row, self.col = nn.Embedding(30, d), nn.Embedding(30, d)
        self.t = nn.Transformer(d, 4, 1, 1, 64, batch_first=True)
        self.q, self.cls, self.box = nn.Embedding(q, d), nn.Linear(d, c), nn.Linear(d, 4)

    def forward(self, images, pixel_mask):
        f, m = self.bb(images, pixel_mask)
        b, d, h, w = f.shape
        src = f.flatten(2).mT + (self.row.weight[:h, None] + self.col.weight[None, :w]).flatten(0, 1)
        hs = self.t(src, self.q.weight.expand(b, -1, -1), src_key_padding_mask=m.flatten(1), memory_key_padding_mask=m.flatten(1))
        return {"logits": self.cls(hs), "boxes": self.box(hs).sigmoid()}


def collate(sizes):
    h, w = max(s[0] for s in sizes), max(s[1] for s in sizes)
    x, m = torch.zeros(len(sizes), 3, h, w), torch.ones(len(sizes), h, w, dtype=torch.bool)
    for i, (a, b) in enumerate(sizes):
        x[i, :, :a, :b] = torch.rand(3, a, b)
        m[i, :a, :b] = False
    return x, m


torch.manual_seed(0)
net = Detr()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for _ in range(3):
    x, m = collate([(32, 24), (24, 40), (40, 32)])
    out = net(x, m)
    loss = nn.functional.cross_entropy(out["logits"].flatten(0, 1), torch.randint(0, 4, (18,))) + nn.functional.l1_loss(out["boxes"], torch.rand(3, 6, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
