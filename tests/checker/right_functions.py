"""Correct custom Functions, each with inputs: nothing in this file may be accused. The mutation harness corrupts them."""

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)


class Sum(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(1).expand(ctx.shape)


class Mean(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(1).expand(ctx.shape) / ctx.shape[1]


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * grad_output - y * (y * grad_output).sum(-1, keepdim=True)


class CrossEntropy(Function):
    """log-softmax with the negative log likelihood of given classes, averaged."""

    @staticmethod
    def forward(ctx, logits, labels):
        log_p = logits - torch.logsumexp(logits, 1, keepdim=True)
        ctx.save_for_backward(logits, labels)
        return -log_p.gather(1, labels.unsqueeze(1)).mean()

    @staticmethod
    def backward(ctx, grad_output):
        logits, labels = ctx.saved_tensors
        p = torch.softmax(logits, 1)
        hot = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return grad_output * (p - hot) / logits.shape[0], None


class LayerNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        mean = x.mean(-1, keepdim=True)
        std = (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
        return (x - mean) / std * weight + bias

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        mean = x.mean(-1, keepdim=True)
        std = (x.var(-1, unbiased=False, keepdim=True) + ctx.eps).sqrt()
        normal = (x - mean) / std
        lead = tuple(range(x.ndim - 1))
        grad_weight = (grad_output * normal).sum(lead)
        grad_bias = grad_output.sum(lead)
        g = grad_output * weight
        grad_x = (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)) / std
        return grad_x, grad_weight, grad_bias, None


class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.transpose(-1, -2) * scale, -1)
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v = ctx.saved_tensors
        p = torch.softmax(q @ k.transpose(-1, -2) * ctx.scale, -1)
        grad_v = p.transpose(-1, -2) @ grad_output
        grad_p = grad_output @ v.transpose(-1, -2)
        grad_s = p * (grad_p - (p * grad_p).sum(-1, keepdim=True)) * ctx.scale
        return grad_s @ k, grad_s.transpose(-1, -2) @ q, grad_v


class Matmul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output @ b.t(), a.t() @ grad_output


class BatchedMatmul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.bmm(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = torch.bmm(grad_output, b.transpose(1, 2))
        if ctx.needs_input_grad[1]:
            grad_b = torch.bmm(a.transpose(1, 2), grad_output)
        return grad_a, grad_b


class Linear(Function):
    """The example of PyTorch's own notes on extending autograd, in the separate style."""

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.t() + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight
        grad_weight = grad_output.t() @ x
        grad_bias = grad_output.sum(0)
        return grad_x, grad_weight, grad_bias


class AddBias(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.sum((0, 1))


class EngineSumsBias(Function):
    """The bias gradient is not reduced: its shape is one the bias expands to, so the engine sums it."""

    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output


class Conv(Function):
    """3 x 3 convolution by unfolding."""

    @staticmethod
    def forward(ctx, image, kernel):
        ctx.save_for_backward(image, kernel)
        n, c, h, w = image.shape
        columns = F.unfold(image, 3, padding=1)
        return (kernel.reshape(kernel.shape[0], -1) @ columns).reshape(n, kernel.shape[0], h, w)

    @staticmethod
    def backward(ctx, grad_output):
        image, kernel = ctx.saved_tensors
        n, c, h, w = image.shape
        columns = F.unfold(image, 3, padding=1)
        g = grad_output.reshape(n, kernel.shape[0], h * w)
        grad_columns = kernel.reshape(kernel.shape[0], -1).t() @ g
        grad_image = F.fold(grad_columns, (h, w), 3, padding=1)
        grad_kernel = (g @ columns.transpose(1, 2)).sum(0)
        return grad_image, grad_kernel.reshape(kernel.shape)


class Where(Function):
    @staticmethod
    def forward(ctx, mask, a, b):
        ctx.save_for_backward(mask)
        return torch.where(mask, a, b)

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        zero = torch.zeros_like(grad_output)
        return None, torch.where(mask, grad_output, zero), torch.where(mask, zero, grad_output)


class MaxOver(Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.max(1)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        ctx.mark_non_differentiable(places)
        return values, places

    @staticmethod
    def backward(ctx, grad_values, grad_places):
        (places,) = ctx.saved_tensors
        grad = grad_values.new_zeros(ctx.shape)
        return grad.scatter(1, places.unsqueeze(1), grad_values.unsqueeze(1))


class Cumsum(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.flip(1).cumsum(1).flip(1)


class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.square().sum(-1).sqrt()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return (grad_output / y).unsqueeze(-1) * x


class Gather(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return x.gather(1, index)

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        return grad_output.new_zeros(ctx.shape).scatter_add(1, index, grad_output), None


class ScatterAdd(Function):
    @staticmethod
    def forward(ctx, base, index, source):
        ctx.save_for_backward(index)
        return base.scatter_add(1, index, source)

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        return grad_output, None, grad_output.gather(1, index)


class Embedding(Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return table[ids]

    @staticmethod
    def backward(ctx, grad_output):
        (ids,) = ctx.saved_tensors
        flat = grad_output.reshape(-1, grad_output.shape[-1])
        grad = grad_output.new_zeros(ctx.rows, grad_output.shape[-1])
        return grad.index_add(0, ids.reshape(-1), flat), None


class Clamp(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        inside = (x >= ctx.low) & (x <= ctx.high)
        return grad_output * inside, None, None


class Relu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x > 0)


class Abs(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.sign()


class Gelu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        pdf = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return grad_output * (cdf + x * pdf)


class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return grad_output * (s + ctx.beta * x * s * (1 - s)), None


class Tanh(Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (1 - y * y)


class Cosine(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        na = a.norm(dim=-1, keepdim=True)
        nb = b.norm(dim=-1, keepdim=True)
        cos = (a * b).sum(-1, keepdim=True) / (na * nb)
        g = grad_output.unsqueeze(-1)
        return g * (b / nb - cos * a / na) / na, g * (a / na - cos * b / nb) / nb


class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.logsumexp(x, 1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output.unsqueeze(1) * torch.exp(x - y.unsqueeze(1))


class Bilinear(Function):
    @staticmethod
    def forward(ctx, a, weight, b):
        ctx.save_for_backward(a, weight, b)
        return torch.einsum("ni,oij,nj->no", a, weight, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, weight, b = ctx.saved_tensors
        grad_a = torch.einsum("no,oij,nj->ni", grad_output, weight, b)
        grad_weight = torch.einsum("no,ni,nj->oij", grad_output, a, b)
        grad_b = torch.einsum("no,oij,ni->nj", grad_output, weight, a)
        return grad_a, grad_weight, grad_b


class Scale(Function):
    @staticmethod
    def forward(ctx, x, weight, alpha):
        ctx.save_for_backward(x, weight)
        ctx.alpha = alpha
        return alpha * x * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return ctx.alpha * grad_output * weight, (ctx.alpha * grad_output * x).sum(0), None


class SquaredError(Function):
    @staticmethod
    def forward(ctx, prediction, target):
        ctx.save_for_backward(prediction, target)
        return ((prediction - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        prediction, target = ctx.saved_tensors
        grad = 2 * grad_output * (prediction - target) / prediction.numel()
        return grad, -grad


class MinMax(Function):
    """Two outputs, one of them used or both."""

    @staticmethod
    def forward(ctx, x):
        low, high = x.amin(1), x.amax(1)
        ctx.save_for_backward(x, low, high)
        return low, high

    @staticmethod
    def backward(ctx, grad_low, grad_high):
        x, low, high = ctx.saved_tensors
        return grad_low.unsqueeze(1) * (x == low.unsqueeze(1)) + grad_high.unsqueeze(1) * (x == high.unsqueeze(1))


class Dropout(Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask / (1 - ctx.p), None


class Recompute(Function):
    """As torch.utils.checkpoint does it: nothing is kept but the input, and forward is run again."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.function(x)
        return None, torch.autograd.grad(y, x, grad_output)[0]


class InPlaceDouble(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class Softplus(Function):
    """jvp and vmap defined as well."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.log1p(torch.exp(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.sigmoid(x)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * torch.sigmoid(x)


class HalfLinear(Function):
    """Decorated for autocast on both sides."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.t() @ x


class RoundStraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class ReverseGradient(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.strength * grad_output, None


DELIBERATE = ("RoundStraightThrough", "ReverseGradient")


def labels(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


INPUTS = {
    "Sum": lambda: (rand(2, 3, 4),),
    "Mean": lambda: (rand(2, 3, 4),),
    "Exp": lambda: (rand(3, 4),),
    "Softmax": lambda: (rand(3, 4),),
    "CrossEntropy": lambda: (rand(5, 4), labels(4, 5)),
    "LayerNorm": lambda: (rand(2, 3, 5), rand(5), rand(5, seed=3), 1e-3),
    "Attention": lambda: (rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)),
    "Matmul": lambda: (rand(3, 4), rand(4, 5)),
    "BatchedMatmul": lambda: (rand(2, 3, 4), rand(2, 4, 5)),
    "Linear": lambda: (rand(3, 4), rand(5, 4), rand(5)),
    "AddBias": lambda: (rand(2, 3, 4), rand(4)),
    "EngineSumsBias": lambda: (rand(2, 3, 4), rand(4)),
    "Conv": lambda: (rand(2, 3, 4, 5), rand(2, 3, 3, 3)),
    "Where": lambda: (labels(2, 3, 4).bool(), rand(3, 4), rand(3, 4, seed=1)),
    "MaxOver": lambda: (rand(3, 4),),
    "Cumsum": lambda: (rand(3, 4),),
    "Norm": lambda: (rand(3, 4),),
    "Gather": lambda: (rand(3, 5), labels(5, 3, 4)),
    "ScatterAdd": lambda: (rand(3, 5), labels(5, 3, 4), rand(3, 4)),
    "Embedding": lambda: (rand(6, 3), labels(6, 2, 4)),
    "Clamp": lambda: (rand(4, 6), -0.6, 0.9),
    "Relu": lambda: (rand(4, 6),),
    "Abs": lambda: (rand(4, 6),),
    "Gelu": lambda: (rand(3, 4),),
    "Swish": lambda: (rand(3, 4), 1.3),
    "Tanh": lambda: (rand(3, 4),),
    "Cosine": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "LogSumExp": lambda: (rand(3, 4),),
    "Bilinear": lambda: (rand(3, 4), rand(2, 4, 5), rand(3, 5)),
    "Scale": lambda: (rand(3, 4), rand(4), 1.7),
    "SquaredError": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "MinMax": lambda: (rand(3, 4),),
    "Dropout": lambda: (rand(4, 6), 0.4),
    "Recompute": lambda: (lambda x: (x * x).sin(), rand(3, 4)),
    "InPlaceDouble": lambda: (rand(3, 4),),
    "Softplus": lambda: (rand(3, 4),),
    "HalfLinear": lambda: (rand(3, 4), rand(5, 4)),
    "RoundStraightThrough": lambda: (rand(3, 4),),
    "ReverseGradient": lambda: (rand(3, 4), 0.5),
}
