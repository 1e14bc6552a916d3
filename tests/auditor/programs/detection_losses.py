# rule: gradient-cut
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.cls_head = nn.Conv2d(32, 4, 1)
        self.box_head = nn.Conv2d(32, 4, 1)

    def forward(self, images, targets=None):
        f = self.backbone(images)
        cls, box = self.cls_head(f), self.box_head(f)
        if targets is None:
            return cls, box
        return self.losses(cls, box, targets)

    def losses(self, cls, box, targets):
        losses = {"loss_cls": F.cross_entropy(cls, targets["classes"])}
        reg = F.smooth_l1_loss(box, targets["boxes"])
        losses["loss_box"] = reg.item() if BUG else reg  # culprit
        return losses


torch.manual_seed(0)
model = Detector()
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9, weight_decay=5e-4)
for step in range(3):
    images = torch.rand(2, 3, 32, 32)
    targets = {"classes": torch.randint(0, 4, (2, 8, 8)), "boxes": torch.randn(2, 4, 8, 8)}
    loss_dict = model(images, targets)
    total = sum(loss for loss in loss_dict.values())
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
print(total.item())
