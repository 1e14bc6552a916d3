# says: [2] vmap
import torch
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
weights = dict(net.named_parameters())


def loss(weights, x, y):
    return (functional_call(net, weights, (x,)) - y) ** 2  # culprit: create


gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, torch.randn(5, 3), torch.randn(5, 2))  # culprit: call
print(gradients["weight"].shape)
