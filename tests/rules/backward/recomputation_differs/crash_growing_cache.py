# says: Saved tensor number
# says: changes `self.cache`
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(4, 4)
        self.cache = []

    def forward(self, x):
        self.cache.append(self.key(x))  # culprit: mutate
        keys = torch.cat(self.cache, dim=1)
        return (x @ keys.mT).softmax(-1).sum(-1)


attention = Attention()
loss = checkpoint(attention, torch.randn(2, 3, 4), use_reentrant=False).square().mean()  # culprit: operand
loss.backward()  # culprit: call
