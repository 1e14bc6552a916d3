import torch
from torch import nn


def saliency(model, images, labels):
    scores = model(images)
    scores.gather(1, labels[:, None]).sum().backward()
    return images.grad.abs().amax(dim=1)  # culprit: operand


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
images = torch.rand(2, 3, 2, 2)  # culprit: create
print(saliency(model, images, torch.tensor([1, 2])).shape)

# says: `images` [2, 3, 2, 2] does not require grad
