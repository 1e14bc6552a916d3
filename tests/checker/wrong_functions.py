"""Functions with one slip each, its line marked: `# culprit: role`, and above the class the rule and words the report must say.

    # rule: backward-scaled-gradient
    # says: 32 times too large | dimension 1 of x has 32 elements
    # inputs: rand(1, 32, 100)
"""

import torch
from torch.autograd import Function

counter = [0.0]


# rule: backward-scaled-gradient
# says: `x` is 32 times too large | dimension 1 of x has 32 elements | a mean treated as a sum
# inputs: rand(1, 32, 100)
class MeanAsSum(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(1).expand(ctx.shape)  # culprit: return-grad


# rule: backward-scaled-gradient
# says: wrong sign
# inputs: rand(3, 4), rand(3, 4)
class LostMinus(Function):
    @staticmethod
    def forward(ctx, a, b):
        return a - b

    @staticmethod
    def backward(ctx, grad_output):
        grad_a = grad_output
        grad_b = grad_output.clone()  # culprit: return-grad
        return grad_a, grad_b


# rule: backward-scaled-gradient
# says: `scale` | leaves it out | with scale=
# inputs: rand(3, 4), 1.0
class ConstantForgotten(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        return scale * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x, None  # culprit: return-grad


# rule: backward-swapped-gradients
# says: `a` and `b` are swapped
# inputs: rand(3, 4), rand(3, 4)
class Swapped(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b.exp()

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_a = grad_output * b.exp()
        grad_b = grad_output * a * b.exp()
        return grad_b, grad_a  # culprit: return-grad


# rule: backward-transposed-gradient
# says: transposed | dimensions 0 and 1
# inputs: rand(4, 4), rand(4, 4)
class Transposed(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, x.t() @ grad_output  # culprit: return-grad


# rule: backward-conditional-gradient
# says: unequal size | wrong shape
# inputs: rand(4, 4)
class SquareOnly(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        n = grad_output.shape[0]
        return grad_output.unsqueeze(1).expand(n, n)  # culprit: return-grad


# rule: backward-ignores-grad-output
# says: does not depend on grad_output | right only when that is all ones
# inputs: rand(3, 4)
class Forgotten(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return x.cos()  # culprit: return-grad


# rule: backward-broadcast-reduction
# says: first slice | dimension 0
# inputs: rand(5, 3), rand(3)
class FirstRowOnly(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output[0]  # culprit: return-grad


# rule: backward-missing-term
# says: lacks | term
# inputs: rand(3, 4)
class ProductRule(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.tanh()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.tanh()  # culprit: return-grad


# rule: backward-conditional-gradient
# says: right only where x > 0
# inputs: rand(3, 4)
class OnlyPositive(Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output  # culprit: return-grad


# rule: backward-conditional-gradient
# says: right only where `mask` is True
# inputs: rand(3, 4), mask(3, 4)
class OnlyMasked(Function):
    @staticmethod
    def forward(ctx, x, mask):
        return torch.where(mask, x, 3 * x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None  # culprit: return-grad


# rule: backward-conditional-gradient
# says: non-contiguous grad_output | view | reshape
# inputs: rand(3, 4)
class ViewsGradOutput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        flat = grad_output.view(-1)  # culprit: operand
        return (2 * flat).view(ctx.shape)


# rule: backward-conditional-gradient
# says: a batch of 1
# inputs: rand(3, 4)
class SqueezesBatch(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        g = grad_output.squeeze()
        return torch.einsum("b,d->bd", g, x.new_ones(x.shape[1]))  # culprit: operand


# rule: backward-wrong-shape
# says: shape [3] | shape [3, 4]
# inputs: rand(3, 4)
class NotExpanded(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output  # culprit: return-grad


# rule: backward-wrong-count
# says: 1 gradient for 2 inputs | `dim`
# inputs: rand(3, 4), 1
class TooFew(Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.shape, ctx.dim = x.shape, dim
        return x.sum(dim)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(ctx.dim).expand(ctx.shape)  # culprit: return-grad


# rule: backward-wrong-count
# says: `power` | no tensor
# inputs: rand(3, 4), 2
class GradientOfANumber(Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x, grad_output  # culprit: return-grad


# rule: backward-wrong-dtype
# says: int64 | float
# inputs: rand(3, 4)
class Integers(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output * 3).long()  # culprit: return-grad


# rule: backward-missing-gradient
# says: None for `weight`
# inputs: rand(3, 4), rand(4)
class NoneForWeight(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return grad_output * weight, None  # culprit: return-grad


# rule: backward-missing-gradient
# says: None for `weight` | needs_input_grad[2]
# inputs: rand(3, 4), 2.0, rand(4)
class OffByOne(Function):
    @staticmethod
    def forward(ctx, x, scale, weight):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return x * weight * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output * weight * ctx.scale
        if ctx.needs_input_grad[1]:  # culprit: return-grad
            grad_weight = (grad_output * x * ctx.scale).sum(0)
        return grad_x, None, grad_weight


# rule: backward-raises
# says: AttributeError
# inputs: rand(3, 4)
class Raises(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 3
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.scale  # culprit: operand


# rule: function-tensor-on-ctx
# says: `ctx.x` | overwritten
# inputs: rand(3, 4)
class InputOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x  # culprit: save
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.x.cos()


# rule: function-tensor-on-ctx
# says: `ctx.y` | cycle
# inputs: rand(3, 4)
class OutputOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y  # culprit: save
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y


# rule: function-double-backward
# says: silently wrong | `x`
# inputs: rand(3, 4)
class SavedIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        s = x.sigmoid()
        ctx.save_for_backward(s)  # culprit: save
        return x * 0 + s.log()

    @staticmethod
    def backward(ctx, grad_output):
        (s,) = ctx.saved_tensors
        return grad_output * (1 - s)


# rule: function-double-backward
# says: once_differentiable | numpy
# inputs: rand(3, 4)
class NumpyBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(grad_output.numpy() * x.detach().cos().numpy())  # culprit: operand


# rule: function-modified-tensors
# says: writes into `grad_output`
# inputs: rand(3, 4)
class WritesGradOutput(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        grad_output *= 3  # culprit: mutate
        return grad_output


# rule: function-modified-tensors
# says: backward writes into `x`
# inputs: rand(3, 4)
class WritesSaved(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.cos_()  # culprit: mutate


# rule: function-modified-tensors
# says: without ctx.mark_dirty
# inputs: rand(3, 4)
class WritesInput(Function):
    @staticmethod
    def forward(ctx, x):
        x.clamp_(min=-10)
        x.add_(0.0)
        x.mul_(2)
        return x + 0

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


# rule: function-output-marks
# says: a view of `x`
# inputs: rand(3, 4)
class ReturnsView(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t()  # culprit: create

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.t()


# rule: function-output-marks
# says: int64 | mark_non_differentiable
# inputs: rand(3, 4)
class UnmarkedIntegers(Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.max(1)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return values, places  # culprit: create

    @staticmethod
    def backward(ctx, grad_values, grad_places):
        (places,) = ctx.saved_tensors
        return grad_values.new_zeros(ctx.shape).scatter(1, places.unsqueeze(1), grad_values.unsqueeze(1))


# rule: function-not-deterministic
# says: same inputs gave different outputs
# inputs: rand(3, 4)
class Counts(Function):
    @staticmethod
    def forward(ctx, x):
        counter[0] += 1.0
        return x + counter[0]

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


# rule: function-transforms
# says: jvp | 0.5 times
# inputs: rand(3, 4)
class WrongJvp(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output

    @staticmethod
    def jvp(ctx, tangent):
        return ctx.saved_tensors[0] * tangent  # culprit: return-grad


# rule: function-transforms
# says: vmap | loop
# inputs: rand(3, 4)
class WrongVmap(Function):
    @staticmethod
    def forward(x):
        return x.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.flip(0).cumsum(0).flip(0)

    @staticmethod
    def vmap(info, in_dims, x):
        return WrongVmap.apply(x), in_dims[0]  # culprit: create


# rule: function-transforms
# says: autocast | custom_bwd
# inputs: rand(3, 4), rand(5, 4)
class HalfDecorated(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.t() @ x  # culprit: operand


# rule: backward-wrong-gradient
# says: `x` | not the derivative of forward
# inputs: rand(3, 4)
class Unrelated(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.erf(x) * x.exp().log1p()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.digamma(x.abs() + 1)  # culprit: return-grad


# rule: backward-missing-term
# says: dimension 0 instead of 1
# inputs: rand(3, 4)
class WrongAxis(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, 1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (grad_output - (grad_output * y).sum(0, keepdim=True))  # culprit: return-grad
