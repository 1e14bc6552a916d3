# says: `x`
import torch
from torch import nn
import torch.nn.functional as F


def attacked(model, images, labels, steps=3):
    x = images + 0.01 * torch.randn_like(images)  # culprit: create
    for _ in range(steps):
        loss = F.cross_entropy(model(x), labels)
        (gradient,) = torch.autograd.grad(loss, x)  # culprit: operand
        x = (x + 0.1 * gradient.sign()).detach()
    return x


torch.manual_seed(0)
model = nn.Linear(6, 3).requires_grad_(False)
print(attacked(model, torch.rand(2, 6), torch.tensor([0, 1])).sum())
