import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self, anchors=3, classes=4):
        super().__init__()
        self.na, self.no = anchors, classes + 5
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU())
        self.pred = nn.Conv2d(32, anchors * self.no, 1)

    def forward(self, x):
        y = self.pred(self.backbone(x))
        b, _, h, w = y.shape
        return y.view(b, self.na, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous()


def compute_loss(pred, targets):
    b, a, gj, gi, box, cls = targets
    ps = pred[b, a, gj, gi]
    pxy, pwh = ps[:, :2].sigmoid(), ps[:, 2:4].exp().clamp(max=10)
    inter = torch.min(pwh, box[:, 2:]).prod(1)
    union = pwh.prod(1) + box[:, 2:].prod(1) - inter + 1e-7
    iou = inter / union
    tobj = torch.zeros_like(pred[..., 4])
    tobj[b, a, gj, gi] = iou.detach().clamp(0)
    lbox = (1 - iou).mean() + F.mse_loss(pxy, box[:, :2])
    lobj = F.binary_cross_entropy_with_logits(pred[..., 4], tobj)
    lcls = F.binary_cross_entropy_with_logits(ps[:, 5:], F.one_hot(cls, 4).float())
    return 0.05 * lbox + lobj + 0.5 * lcls, torch.stack((lbox, lobj, lcls)).detach()


torch.manual_seed(0)
model = Head()
g = [[], [], []]
for v in model.modules():
    if isinstance(v, nn.BatchNorm2d):
        g[2] += [v.weight, v.bias]
    elif isinstance(v, nn.Conv2d):
        g[0].append(v.weight)
        if v.bias is not None:
            g[1].append(v.bias)
optimizer = torch.optim.SGD(g[1], lr=0.01, momentum=0.9, nesterov=True)
optimizer.add_param_group({"params": g[0], "weight_decay": 5e-4})
optimizer.add_param_group({"params": g[2]})
for _ in range(3):
    x = torch.rand(2, 3, 32, 32)
    n = 6
    cells = torch.randperm(2 * 3 * 8 * 8)[:n]
    t = (cells // 192, cells // 64 % 3, cells // 8 % 8, cells % 8, torch.rand(n, 4), torch.randint(0, 4, (n,)))
    loss, items = compute_loss(model(x), t)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), items.tolist())
