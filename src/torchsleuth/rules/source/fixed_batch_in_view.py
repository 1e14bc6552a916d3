"""A batch size written as a number into `view` or `reshape`."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import Value
from torchsleuth.linter.vectorise.context import integer
from torchsleuth.model import Confidence, Role


class FixedBatchInView(LintRule):
    """`x.view(32, -1)` in a forward pass: the batch size is written into the model.

    What happened
    -------------
    `forward` reshapes its input with a number in the first place and `-1` in the second.

    Why
    ---
    With any other batch size (the last batch of an epoch, a single example at inference) torch raises "shape is
    invalid for input", or, where the sizes happen to divide, mixes the rows of different examples without an
    error.

    Example
    -------
    This runs and prints [32, 12]: sixteen examples became thirty-two rows.

        import torch
        x = torch.randn(16, 24)
        print(list(x.view(32, -1).shape))

    Fix
    ---
    Take the size from the tensor: `x.view(x.size(0), -1)`, or `x.flatten(1)`.

    Common false explanations
    -------------------------
    "view raises if the batch size is wrong." Only if the number of elements does not divide.
    """

    name = "fixed-batch-in-view"
    calls = frozenset({"view", "reshape"})

    def on_call(self, call: Call, view: View) -> Found:
        frame = call.frame
        if call.receiver is None or not call.receiver.is_tensor or frame.cls is None or not frame.cls.is_module:
            return None
        if getattr(frame.node, "name", "") != "forward" or frame.inlined:
            return None
        sizes = call.node.args
        if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
            sizes = sizes[0].elts
        if len(sizes) != 2 or not _is_batched(call.receiver, frame.params):
            return None
        if any(call.receiver is p for p in frame.params.values()) and not any(v.kind == "module" for v in frame.cls.attributes.values()):
            return None  # an argument, and no layer that would take its rows: what the first dimension is nobody says
        if integer(sizes[1]) != -1 and (not _is_written_out(sizes[1]) or any(call.receiver is p for p in frame.params.values())):
            return None
        first = integer(sizes[0])
        if first is None or first < 2:
            return None
        text = view.short(call.node.func.value, 30)
        return self.diagnosis(
            f"`{view.short(call.node)}` fixes the batch size at {first}",
            [view.culprit(Role.CREATE, call.node, f"{first} is written into the model", frame)],
            "Another batch size (the last batch, a single example) raises here or, where the sizes happen to divide, mixes the rows of "
            "different examples.",
            Confidence.LIKELY,
            fixes=[advice(f"`{text}.view({text}.size(0), -1)` or `{text}.flatten(1)`")],
        )


def _is_batched(value: Value, params: dict[str, Value]) -> bool:
    """Made from an argument of `forward` by layers that keep the batch first."""
    for _ in range(12):
        if any(value is p for p in params.values()):
            return True
        if value.op in ("relu", "max_pool2d", "avg_pool2d", "conv2d", "conv1d", "dropout", "linear", "gelu", "tanh", "sigmoid", "batch_norm", "flatten",
                        "silu", "contiguous", "float", "Conv2d", "Conv1d", "BatchNorm2d", "leaky_relu", "elu") and value.inputs:  # fmt: skip
            value = value.inputs[0]
            continue
        return False
    return False


def _is_written_out(node: ast.expr) -> bool:
    """`8 * 26 * 26`"""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and _is_written_out(node.left) and _is_written_out(node.right)
    return (integer(node) or 0) > 1
