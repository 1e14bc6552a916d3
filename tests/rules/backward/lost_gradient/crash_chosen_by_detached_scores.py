# says: .tolist()
import torch
from torch import nn

model = nn.Linear(4, 1)
scores = model(torch.randn(8, 4)).squeeze(1)
hardest = torch.argsort(scores.detach())[:3]  # no gradient could come through an order
kept = torch.tensor(scores[hardest].tolist())  # culprit: lost-grad
loss = kept.square().mean()
loss.backward()  # culprit: call
