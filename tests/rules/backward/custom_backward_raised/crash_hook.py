import torch

x = torch.ones(3, requires_grad=True)
y = x * 2  # culprit: call


def halve(grad):
    return {"half": grad}["whole"]  # culprit: operand


y.register_hook(halve)
y.sum().backward()
