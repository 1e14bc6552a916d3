import torch
from torch import nn

torch.manual_seed(0)


class BoxHead(nn.Module):
    def __init__(self, width, anchors):
        super().__init__()
        self.predict = nn.Linear(width, 4 * anchors)
        self.anchors = anchors

    def forward(self, features):
        boxes = self.predict(features).view(-1, self.anchors, 4)
        centres, sizes = boxes[..., :2], boxes[..., 2:]
        sizes.clamp_(min=0.05)
        centres += 0.5
        return boxes


head = BoxHead(6, 3)
boxes = head(torch.randn(5, 6))
(boxes[..., :2].pow(2).mean() + boxes[..., 2:].sqrt().mean()).backward()
# says: `sizes` [5, 3, 2] `boxes` [5, 3, 4]
