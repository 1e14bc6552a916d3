import torch
from torch import nn

torch.manual_seed(0)
backbone, head = nn.Linear(4, 8), nn.Linear(8, 2)
features = torch.relu(backbone(torch.randn(3, 4)))  # culprit: create
features.requires_grad = False  # culprit: operand
head(features).sum().backward()

# says: `features` [3, 8] `features.detach()`
