import torch
from torch import nn

torch.manual_seed(0)
backbone, head = nn.Linear(4, 8), nn.Linear(8, 2)
features = torch.relu(backbone(torch.randn(3, 4)))
features = features.detach()
head(features).sum().backward()
