# rule: zero-gradient, exactly
# says: `Sign.backward` returns zeros
# says: `first.weight` and `second.weight` is zero in every element
BUG = True
import torch
from torch import nn


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, scale):
        ctx.save_for_backward(weight, scale)
        return torch.where(weight >= 0, scale, -scale)

    @staticmethod
    def backward(ctx, grad):
        weight, scale = ctx.saved_tensors
        for_scale = (grad * weight.sign()).sum()
        if not BUG:
            return grad * (weight.abs() <= 1), for_scale
        return grad * (weight.abs() > 1), for_scale  # culprit


class Binary(nn.Linear):
    def __init__(self, i, o):
        super().__init__(i, o)
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        return nn.functional.linear(x, Sign.apply(self.weight, self.scale), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Binary(6, 12), Binary(12, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
