"""Attention weights normalised over something other than the keys."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import Value
from torchsleuth.linter.vectorise.context import integer
from torchsleuth.model import Confidence, Role


class SoftmaxOverWrongDim(LintRule):
    """Attention weights are normalised over another dimension than the one they are summed over.

    What happened
    -------------
    `softmax(scores, dim=d)` is multiplied with the values (`weights @ v`), but `d` is not the last dimension.

    Why
    ---
    `weights @ v` sums over the last dimension of `weights`. For a weighted mean those must sum to one. Normalised
    over the queries or the batch they do not: every output has another scale, and examples of a batch can
    influence one another. Nothing raises, because all shapes fit.

    Example
    -------
    This runs and prints False: the weights of a query do not sum to one.

        import torch
        q, k, v = torch.randn(3, 2, 5, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1), dim=1)
        out = weights @ v
        print(torch.allclose(weights.sum(-1), torch.ones(2, 5)))

    Fix
    ---
    `dim=-1`.

    Common false explanations
    -------------------------
    "dim=1 is the sequence." It is, but in the scores it is the sequence of *queries*.
    """

    name = "softmax-over-wrong-dim"
    calls = frozenset({"matmul", "bmm"})

    def on_call(self, call: Call, view: View) -> Found:
        operands = call.args if call.path else [call.receiver, *call.args]
        if len(operands) < 2 or operands[0] is None:
            return None
        return self._judge(operands[0], call.node, call, view)

    def on_statement(self, node: ast.stmt, frame, view: View) -> Found:
        if not view.has("softmax"):
            return None
        value = getattr(node, "value", None)
        found = []
        for child in ast.walk(value) if value is not None else ():
            if isinstance(child, ast.BinOp) and isinstance(child.op, ast.MatMult):
                weights = frame.env.get(child.left.id) if isinstance(child.left, ast.Name) else None
                if weights is not None:
                    result = self._judge(weights, child, None, view, frame)
                    if result is not None:
                        found.append(result)
        return found

    def _judge(self, weights: Value, product: ast.AST, call: Call | None, view: View, frame=None):
        softmax = _softmax_behind(weights)
        if softmax is None or not isinstance(softmax.node, ast.Call):
            return None
        dim = _dim_of(softmax)
        scores = softmax.inputs[0] if softmax.inputs else None
        if dim is None or scores is None or not _is_scores(scores):
            return None
        rank = _least_rank(scores)
        wrong = dim == -2 or dim == 0 and (rank > 1 if rank is not None else _is_of_matrices(scores)) or (rank is not None and 0 <= dim < rank - 1)
        if dim == -1 or not wrong:
            return None
        frame = frame or call.frame
        return self.diagnosis(
            f"attention weights are normalised over dimension {dim}, but summed over the last one",
            [
                view.culprit(Role.OPERAND, softmax.node, f"`dim={dim}`", frame),
                view.culprit(Role.CALL, product, "sums over the last dimension", frame),
            ],
            f"The product sums over the last dimension of the weights, so those must sum to one there. `dim={dim}` normalises over "
            "another dimension; all shapes fit and nothing raises.",
            Confidence.CERTAIN,
            fixes=[advice("`dim=-1`")],
        )


def _softmax_behind(value: Value) -> Value | None:
    for _ in range(4):
        if not value.is_tensor:
            return None
        if value.op == "softmax":
            return value
        if value.op in ("dropout", "to", "float", "type_as", "contiguous", "half") and value.inputs:
            value = value.inputs[0]
            continue
        return None
    return None


def _dim_of(value: Value) -> int | None:
    node = value.node
    module = (value.extra or {}).get("module")
    if module is not None and isinstance(module.node, ast.Call):
        node, place = module.node, 0
    else:
        is_function = len(node.args) > 0 and isinstance(node.func, ast.Attribute) and node.func.attr == "softmax" and value.inputs \
            and isinstance(value.inputs[0], Value) and len(node.args) >= 2  # fmt: skip
        place = 1 if is_function else 0 if not (node.args and integer(node.args[0]) is None) else 1
    for keyword in node.keywords:
        if keyword.arg == "dim":
            return integer(keyword.value)
    return integer(node.args[place]) if place < len(node.args) else None


def _is_of_matrices(value: Value) -> bool:
    """A product with something transposed is one of matrices, not of a matrix and a vector."""
    for _ in range(6):
        if value.op in ("matmul", "bmm", "baddbmm"):
            text = ast.unparse(value.node) if value.node is not None else ""
            return value.op != "matmul" or any(word in text for word in (".T", ".mT", ".t()", "transpose", "permute", "swapaxes"))
        if not value.inputs:
            return False
        value = next((i for i in value.inputs if i.is_tensor), value.inputs[0])
    return False


def _least_rank(value: Value) -> int | None:
    """Masks and scales may add dimensions to a product, never take one away."""
    least = value.ndim
    for _ in range(6):
        if value.ndim is not None and (least is None or value.ndim > least):
            least = value.ndim
        if value.op in ("matmul", "bmm", "baddbmm") or not value.inputs:
            break
        value = next((i for i in value.inputs if i.is_tensor), value.inputs[0])
    return least


def _is_scores(value: Value) -> bool:
    """A product of queries and keys, scaled or masked."""
    for _ in range(6):
        if value.op in ("matmul", "bmm", "baddbmm"):
            return True
        if value.op in ("div", "mul", "add", "sub", "masked_fill", "where", "div_", "mul_", "masked_fill_", "float", "to", "either") and value.inputs:
            value = next((i for i in value.inputs if i.is_tensor), value.inputs[0])
            continue
        return False
    return False
