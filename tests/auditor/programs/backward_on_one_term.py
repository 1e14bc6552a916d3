# rule: unused-parameters
# says: `backward()` is called on a part of the loss
# says: `boxes.weight`
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.GELU())
        self.scores, self.boxes = nn.Linear(24, 5), nn.Linear(24, 4)

    def forward(self, x):
        h = self.body(x)
        return self.scores(h), self.boxes(h)


net = Detector()
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    x, y, where = torch.randn(8, 12), torch.randint(0, 5, (8,)), torch.rand(8, 4)
    scores, boxes = net(x)
    loss_class, loss_box = F.cross_entropy(scores, y), F.smooth_l1_loss(boxes, where)
    total = loss_class + 2 * loss_box  # culprit
    opt.zero_grad()
    if BUG:
        loss_class.backward()  # culprit
    else:
        total.backward()
    opt.step()
    print(f"{total.item():.4f}")
