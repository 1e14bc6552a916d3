"""A mean over positions that counts padding."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import Value
from torchsleuth.linter.vectorise.context import integer
from torchsleuth.model import Confidence, Role

KEEP_POSITIONS = frozenset("dropout float contiguous linear relu gelu tanh silu sigmoid layer_norm LSTM GRU RNN".split())


class MeanOverPadding(LintRule):
    """The mean over a sequence counts padded positions.

    What happened
    -------------
    Embeddings of padded sequences are averaged over their positions with a plain `mean(dim=1)`; or a mask has set
    positions to zero (`h * mask.unsqueeze(-1)`) before such a mean.

    Why
    ---
    `nn.Embedding(..., padding_idx=0)` gives padding a vector of zeros, but `mean` still divides by the full length: the
    shorter a sequence, the smaller its mean, and the result depends on how long the longest sequence of the batch
    happens to be. Nothing raises.

    Example
    -------
    This runs and prints False: the same sentence, padded further, gets another mean.

        import torch
        from torch import nn
        torch.manual_seed(0)
        embedding = nn.Embedding(10, 4, padding_idx=0)
        short, padded = torch.tensor([[3, 5]]), torch.tensor([[3, 5, 0, 0]])
        print(torch.allclose(embedding(short).mean(dim=1), embedding(padded).mean(dim=1)))

    Fix
    ---
    Sum and divide by the number of real tokens: `(x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)`.

    Common false explanations
    -------------------------
    "padding_idx takes padding out of the mean." It makes its vector zero; it still counts.
    """

    name = "mean-over-padding"
    calls = frozenset({"mean"})

    def on_call(self, call: Call, view: View) -> Found:
        value = call.receiver if call.receiver is not None and call.receiver.is_tensor else call.args[0] if call.args and call.path == "torch.mean" else None
        if value is None or not value.is_tensor:
            return None
        dim = call.argument(0 if call.receiver is not None and call.receiver.is_tensor else 1, "dim")
        if dim is None or integer(dim) not in (1, -2):
            return None
        masked = _masked_by(value)
        if masked is not None:
            return self._masked(call, *masked, view)
        embedding, mixed = _embedding_behind(value)
        if embedding is None:
            return None
        module = embedding.extra["module"]
        made = module.node
        padding = next((k for k in made.keywords if k.arg == "padding_idx"), None) if isinstance(made, ast.Call) else None
        if padding is None or (isinstance(padding.value, ast.Constant) and padding.value.value is None):
            return None
        if embedding.ndim not in (None, 3) or embedding.ndim is None and integer(dim) != 1:
            return None
        return self.diagnosis(
            f"`{view.short(call.node)}` divides by the padded length",
            [
                view.culprit(Role.OPERAND, call.node, "padded positions count", call.frame),
                view.culprit(Role.CREATE, made, "padding is expected here"),
            ],
            "What is computed at padded positions goes into the mean as well: it depends on how far a sequence was padded."
            if mixed
            else "Padding has a vector of zeros here, but the mean still divides by the full length: it depends on how far a sequence was padded.",
            Confidence.LIKELY,
            fixes=[advice("sum and divide by the number of real tokens: `(x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)`")],
        )

    def _masked(self, call: Call, node: ast.AST, mask: str, view: View):
        return self.diagnosis(
            f"`{view.short(call.node)}` divides by the padded length",
            [
                view.culprit(Role.OPERAND, call.node, "masked positions count", call.frame),
                view.culprit(Role.CREATE, node, "set to zero here", call.frame),
            ],
            f"Where `{mask[:40]}` takes positions out they are zero, but the mean still divides by the full length: it depends on how far "
            "a sequence was padded.",
            Confidence.LIKELY,
            fixes=[advice("sum and divide by the number of real tokens: `(x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)`")],
        )


def _masked_by(value: Value) -> tuple[ast.AST, str] | None:
    """`h * mask.unsqueeze(-1)` or `h.masked_fill(~mask[..., None], 0)`: positions set to zero -> where, and the mask."""
    node = value.node
    if value.op in ("mul", "mul_"):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value] if isinstance(node, ast.AugAssign) else []
        mask = next((p for p in parts if _is_token_mask(p)), None)
        return (node, ast.unparse(mask)) if mask is not None else None
    if value.op in ("masked_fill", "masked_fill_") and isinstance(node, ast.Call) and len(node.args) == 2:
        filled = node.args[1]
        if isinstance(filled, ast.Constant) and filled.value == 0 and _is_token_mask(node.args[0]):
            return node, ast.unparse(node.args[0])
    return None


def _is_token_mask(node: ast.expr) -> bool:
    """One value per position, spread over the features: `mask.unsqueeze(-1)`, `mask[..., None]`, `~mask[:, :, None].float()`."""
    if not re.search("mask|pad", ast.unparse(node), re.IGNORECASE):
        return False
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr == "unsqueeze" and len(child.args) == 1:
            if integer(child.args[0]) in (-1, 2):
                return True
        if isinstance(child, ast.Subscript) and isinstance(child.slice, ast.Tuple) and isinstance(child.slice.elts[-1], ast.Constant):
            if child.slice.elts[-1].value is None and len(child.slice.elts) in (2, 3):
                return True
    return False


def _embedding_behind(value: Value) -> tuple[Value | None, bool]:
    """The embedding this is made from, position by position, and whether padding is no longer zero; nothing where it was masked."""
    mixed = False
    for _ in range(6):
        if value.op == "embedding" and value.extra and "module" in value.extra:
            return value, mixed
        if value.op in ("LSTM", "GRU", "RNN") and not _is_batch_first(value):
            return None, False
        if value.op in KEEP_POSITIONS and value.inputs:
            mixed = mixed or value.op not in ("dropout", "float", "contiguous")
            value = value.inputs[0]
            continue
        return None, False
    return None, False


def _is_batch_first(value: Value) -> bool:
    made = (value.extra or {}).get("module")
    node = made.node if made is not None else None
    return isinstance(node, ast.Call) and any(k.arg == "batch_first" and getattr(k.value, "value", None) is True for k in node.keywords)
