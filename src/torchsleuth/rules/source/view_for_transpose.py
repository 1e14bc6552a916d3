"""`view` used to swap dimensions, which it cannot do."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import CONSTRUCTORS
from torchsleuth.model import Confidence, Role

LAID_OUT = re.compile(r"weight|pack|cache|scale|storage|buffer|block|tile|kernel", re.IGNORECASE)


class ViewForTranspose(LintRule):
    """`view` or `reshape` puts dimensions in another order, which mixes up the elements.

    What happened
    -------------
    `view` (or `reshape`) is given the sizes of a tensor in another order, or pulls a new dimension in front of one that
    was further forward: `x.view(B, H, T, D)` of a tensor `[B, T, H * D]`.

    Why
    ---
    `view` never moves elements: it cuts the same row-major sequence into other lengths. Only `transpose` and
    `permute` move dimensions. The shapes come out as wanted, the contents do not: each head gets pieces of
    several positions. Nothing raises.

    Example
    -------
    This runs and prints False: the shapes agree, the elements do not.

        import torch
        x = torch.arange(6).reshape(1, 3, 2)
        swapped, viewed = x.transpose(1, 2), x.view(1, 2, 3)
        print(torch.equal(swapped, viewed))

    Fix
    ---
    First cut, then move: `x.view(B, T, H, D).transpose(1, 2)`.

    Common false explanations
    -------------------------
    "view and transpose give the same shape, so they do the same." The shape is the same, the order is not.
    """

    name = "view-for-transpose"
    calls = frozenset({"view", "reshape"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.receiver is None or not call.receiver.is_tensor or call.frame.inlined:
            return None
        shape = call.receiver.shape
        sizes = call.node.args
        if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
            sizes = sizes[0].elts
        if shape is None or len(shape) < 2 or len(sizes) < 2 or any(isinstance(s, ast.Starred) for s in sizes):
            return None
        if isinstance(call.node.func.value, ast.Name) and LAID_OUT.search(call.node.func.value.id):
            return None  # stored for a kernel, which says in which order
        if call.receiver.op in ("pad", "cat", "concat") or call.receiver.op in CONSTRUCTORS:
            return None  # padded by one and cut anew: the shift of relative positions; or memory that something else filled
        shape = _still_meant(shape, call.frame.node)
        wanted = [s.id if isinstance(s, ast.Name) else s.value if isinstance(s, ast.Constant) else None for s in sizes]
        named = [n for n in shape if isinstance(n, str) and n != "_"]
        if len(set(named)) != len(named) or sum(n in wanted for n in named) < 2:
            return None
        if any(ast.unparse(s) == "-1" for s in sizes) and all(isinstance(n, str) and n in wanted for n in shape):
            wanted = [1 if ast.unparse(s) == "-1" else w for s, w in zip(sizes, wanted, strict=True)]  # nothing is left for it
        moved = _moved(shape, wanted)
        if moved is None:
            return None
        return self.diagnosis(
            f"`{view.short(call.node)}` cannot move `{moved}`: view keeps the order of the elements",
            [view.culprit(Role.OPERAND, call.node, f"`{moved}` stands in another place than before", call.frame)],
            f"The tensor has the sizes ({', '.join(str(s) if s is not None else '?' for s in shape)}). `view` cuts the same sequence of "
            f"elements into other lengths; it does not bring `{moved}` to its new place, so elements of different positions are mixed.",
            Confidence.LIKELY,
            fixes=[advice("cut first and move then: `.view(...)` in the old order, followed by `.transpose(...)` or `.permute(...)`")],
        )


def _moved(shape: tuple, wanted: list) -> str | None:
    """A named size that ends up behind something it was in front of, or behind a new size that nothing before it was cut into."""
    named = [(place, n) for place, n in enumerate(shape) if isinstance(n, str) and n in wanted]
    order = [wanted.index(n) for _, n in named]
    if any(wanted.count(n) != 1 for _, n in named):
        return None
    if order != sorted(order):
        return next(n for (_, n), a, b in zip(named, order, sorted(order), strict=True) if a != b)
    for place, n in named:
        before = shape[:place]
        # Every dimension in front of it is still there by name, so nothing new may stand between.
        if before and all(isinstance(b, str) and b in wanted for b in before):
            extra = [w for w in wanted[: wanted.index(n)] if w not in before]
            if any(w != 1 for w in extra) and wanted.index(n) > place:
                return n
    return None


def _still_meant(shape: tuple, function: ast.AST) -> tuple:
    """Names of sizes that are set once: after `height = height // patch` the name is no size of the tensor any more."""
    sets: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            sets[node.id] = sets.get(node.id, 0) + 1
    return tuple(s if not isinstance(s, str) or sets.get(s, 1) == 1 else None for s in shape)
