# says: `Polar` saved its result
import torch


class Polar(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.norm(dim=-1, keepdim=True)
        direction = x / length
        ctx.save_for_backward(length, direction)  # culprit: save
        return length, direction

    @staticmethod
    def backward(ctx, of_length, of_direction):
        length, direction = ctx.saved_tensors
        along = (of_direction * direction).sum(-1, keepdim=True) * direction
        return of_length * direction + (of_direction - along) / length


torch.manual_seed(0)
x = torch.randn(5, 3, requires_grad=True)
length, direction = Polar.apply(x)  # culprit: save
direction[:, 0] = 0  # culprit: mutate
(length.sum() + direction.sum()).backward()
