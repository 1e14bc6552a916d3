"""Along which axis did the last layer lay the classes, and is it the one that the loss takes for them?

Where as many positions as classes are there, a forgotten (or one too many) `transpose` raises nothing.
"""

from __future__ import annotations

from torchsleuth.auditor.tracing.trace import Op, Seen, Trace

_SAME = {"contiguous", "clone", "float", "to", "double", "half", "bfloat16", "dropout", "type_as", "requires_grad_", "log_softmax", "softmax",
         "div", "mul", "add", "sub", "__truediv__", "__mul__", "__add__", "__sub__", "clamp", "tanh", "relu", "gelu", "silu", "sigmoid", "elu",
         "leaky_relu", "layer_norm", "batch_norm", "masked_fill", "relu_", "add_", "mul_"}  # fmt: skip
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
MOST_STEPS = 60
_POOLING = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "interpolate", "upsample", "pad")  # samples and channels stay where they are
_SWAPS = {"transpose", "swapaxes", "swapdims"}


def wrong_layer(trace: Trace, seen: Seen) -> Op | None:
    """The layer whose outputs do not lie along axis 1 of this operand of a loss, which counts positions (or samples) instead.

    None where they do, where the way back is not plain, or where another layer laid something along axis 1.
    """
    axis, found = 1, None
    for _ in range(MOST_STEPS):
        op = trace.maker(seen)
        if op is None:
            return found  # an input of the model
        if not op.ins or not op.outs:
            return None
        if _is_layer(op):
            own = 1 if op.name.startswith("conv") else len(op.outs[0].size) - 1
            if len(op.ins) < 2 or op.ins[1].key not in trace.parameters or own == axis:
                return None
            found = found or op
            if len(op.ins[0].size) != len(op.outs[0].size) or op.ins[0].size[axis] != op.outs[0].size[axis]:
                return None
            seen = op.ins[0]
            continue
        if op.name == "embedding" or op.name in _RECURRENT:
            return found if axis < len(op.outs[0].size) - 1 else None
        before = axis_before(op, axis)
        if before is None:
            return None
        seen, axis = op.ins[0], before
    return None


def laid_by_layer(trace: Trace, seen: Seen, axis: int) -> bool:
    """Does this axis count the outputs of a layer (and not positions or samples)?"""
    for _ in range(MOST_STEPS):
        op = trace.maker(seen)
        if op is None or not op.ins or not op.outs:
            return False
        if _is_layer(op) and len(op.ins) > 1 and op.ins[1].key in trace.parameters:
            return axis == (1 if op.name.startswith("conv") else len(op.outs[0].size) - 1)
        before = axis_before(op, axis)
        if before is None:
            return False
        seen, axis = op.ins[0], before
    return False


def _is_layer(op: Op) -> bool:
    return op.name in ("linear", "matmul", "__matmul__") or op.name.startswith(("conv1d", "conv2d", "conv3d"))


def axis_before(op: Op, axis: int) -> int | None:
    """Where this axis of the result was in the operand."""
    dims = len(op.ins[0].size)
    if op.name in _SAME:
        return axis if op.ins[0].size == op.outs[0].size else None
    if axis < 2 and op.name.startswith(_POOLING):
        return axis
    if op.name in _SWAPS:
        pair = [op.argument(1, "dim0", op.argument(1, "axis0")), op.argument(2, "dim1", op.argument(2, "axis1"))]
        if not all(isinstance(d, int) for d in pair):
            return None
        one, two = (d % dims for d in pair)
        return two if axis == one else one if axis == two else axis
    if op.name in ("mT", "T", "t") and dims >= 2 and (op.name == "mT" or dims == 2):
        return {dims - 1: dims - 2, dims - 2: dims - 1}.get(axis, axis)
    if op.name == "permute":
        given = op.plain[0][1:] or (op.argument(1, "dims"),)
        order = given[0] if len(given) == 1 and isinstance(given[0], tuple) else given
        if len(order) == dims and all(isinstance(d, int) for d in order):
            return order[axis] % dims
    return None
