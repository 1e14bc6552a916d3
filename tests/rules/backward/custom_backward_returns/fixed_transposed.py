import torch


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = grad @ w
        if ctx.needs_input_grad[1]:
            gw = grad.t() @ x
        return gx, gw


x, w = torch.randn(5, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
Linear.apply(x, w).sum().backward()
