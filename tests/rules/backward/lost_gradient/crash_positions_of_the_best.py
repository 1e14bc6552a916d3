import torch
from torch import nn

scorer = nn.Linear(4, 3)
scores = scorer(torch.randn(5, 4))
best = torch.max(scores, 1).indices  # culprit: lost-grad
loss = (best.float() - torch.arange(5.0)).pow(2).mean()
loss.backward()  # culprit: call
# says: the positions are integers
# says: The values have one.
