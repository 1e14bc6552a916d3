"""Why an operation makes NaN or infinity of what it was given: what about its inputs explains it, in a clause."""

from __future__ import annotations

import math
import typing

import torch

# Operations that make infinity of finite numbers.
SINGULAR = {"log", "log2", "log10", "exp", "div", "true_divide", "__truediv__", "reciprocal", "pow", "rsqrt", "__rtruediv__", "__rdiv__", "__pow__", "expm1",
             "sinh", "cosh", "tan", "log_", "exp_", "div_", "square", "logit", "lgamma"}  # fmt: skip
# Operations that make NaN of finite numbers.
_MAKES_NAN = frozenset({
    "div", "true_divide", "truediv", "rtruediv", "rdiv", "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "logit", "pow", "rpow", "float_power", "acos", "asin",
    "acosh", "atanh", "softmax", "log_softmax", "std", "var", "std_mean", "var_mean", "mean", "fmod", "remainder", "scaled_dot_product_attention",
    "multi_head_attention_forward", "cross_entropy", "nll_loss", "inv", "solve",
})  # fmt: skip
_OF_FEW = frozenset({"std", "var", "std_mean", "var_mean", "mean"})  # and these only of no elements, or of one


def may_make_nan(name: str, given: typing.Sequence[int], result: typing.Sequence[int]) -> bool:
    """Of finite numbers, as far as the shapes tell."""
    return name in _MAKES_NAN and (name not in _OF_FEW or math.prod(given) // max(1, math.prod(result)) <= 1)


def why_undefined(name: str, args: tuple, kwargs: dict, result: typing.Sequence[int]) -> str:
    """Empty where nothing is recognised. `result` is the shape of what came out."""
    tensors = list(_tensors((args, kwargs)))
    if not tensors:
        return ""
    first, name = tensors[0], name.strip("_")
    if name in ("softmax", "log_softmax"):
        dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
        hidden = (first == -math.inf).all(dim) if isinstance(dim, int) else torch.zeros(0, device="cpu")
        if hidden.any():
            return f"{int(hidden.sum())} of the {hidden.numel()} slices that it runs over hold only -inf: everything there is masked"
    elif name.startswith("log") and name != "logsumexp" or name in ("sqrt", "rsqrt", "pow"):
        negative, zero = int((first < 0).sum()), int((first == 0).sum())
        return f"its input holds {negative} negative numbers" if negative else f"its input holds {zero} zeros" if zero else ""
    elif name in ("div", "true_divide", "truediv") and len(args) > 1:
        by = args[1] if isinstance(args[1], torch.Tensor) else torch.as_tensor(float(args[1]), device="cpu")
        zeros = int((by == 0).sum())
        return f"it divides by zero at {zeros} of {by.numel()} places" if zeros else ""
    elif name in ("std", "var", "std_mean", "var_mean"):
        return "it is taken over one element, of which there is no spread" if first.numel() // max(1, math.prod(result)) == 1 else ""
    elif name in ("mean", "nanmean") and first.numel() == 0:
        return "it is the mean of no elements"
    elif name in ("cross_entropy", "nll_loss") and len(tensors) > 1:
        target = args[1] if len(args) > 1 else kwargs.get("target")
        ignore = args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)
        if isinstance(target, torch.Tensor) and not target.is_floating_point() and bool((target == ignore).all()):
            return f"all {target.numel()} labels are {ignore}, which it ignores: it is the mean of no elements"
    elif name in ("exp", "expm1", "sinh", "cosh", "square"):
        return f"the largest number it is given is {float(first.max()):.4g}"
    infinite = sum(int(tensor.isinf().sum()) for tensor in tensors if tensor.is_floating_point())
    return f"its inputs hold {infinite} infinite numbers" if infinite else ""


def _tensors(value: typing.Any) -> typing.Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
