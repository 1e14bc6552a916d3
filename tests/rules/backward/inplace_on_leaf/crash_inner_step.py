import torch
import torch.nn.functional as F


def predicted(weights, x):
    return torch.tanh(x @ weights[0]) @ weights[1]


def adapted(weights, x, y):
    loss = F.mse_loss(predicted(weights, x), y)
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    for w, g in zip(weights, gradients):
        w -= 0.1 * g  # culprit: mutate
    return weights


torch.manual_seed(0)
weights = [torch.randn(2, 3), torch.randn(3, 1)]
for w in weights:
    w.requires_grad_()  # culprit: create
x, y = torch.randn(5, 2), torch.randn(5, 1)
F.mse_loss(predicted(adapted(weights, x, y), x), y).backward()
