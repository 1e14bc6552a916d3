"""Softmax called without saying over which dimension."""

from __future__ import annotations

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role

FUNCTIONS = ("torch.nn.functional.softmax", "torch.nn.functional.log_softmax", "torch.nn.functional.softmin")
MODULES = ("torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Softmin")


class SoftmaxWithoutDim(LintRule):
    """Softmax is called without `dim`, so torch guesses the dimension from the number of dimensions.

    What happened
    -------------
    `F.softmax(x)`, `F.log_softmax(x)` or `nn.Softmax()` was called without `dim`.

    Why
    ---
    Without `dim` torch uses dimension 0 for tensors of 0, 1 or 3 dimensions and dimension 1 otherwise. For a
    batch of sequences (3 dimensions) that normalises over the *batch*: the examples of a batch then
    influence one another, and nothing raises. torch itself warns that the implicit choice is deprecated.

    Example
    -------
    This runs (with a warning) and prints False: the rows of each sequence do not sum to one, the batch does.

        import torch
        import torch.nn.functional as F
        scores = torch.randn(4, 5, 6)
        weights = F.softmax(scores)
        print(torch.allclose(weights.sum(-1), torch.ones(4, 5)))

    Fix
    ---
    Name the dimension whose entries must sum to one: `F.softmax(scores, dim=-1)` for classes or attention
    over keys in the last dimension.

    Common false explanations
    -------------------------
    "The default is the last dimension." It is not: it depends on the number of dimensions, and for three it
    is the first.
    """

    name = "softmax-without-dim"
    calls = frozenset({"softmax", "log_softmax", "softmin", "Softmax", "LogSoftmax", "Softmin"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.path in FUNCTIONS:
            place = 1
        elif call.path in MODULES:
            place = 0
        else:
            return None
        keywords = {k.arg for k in call.node.keywords}
        if keywords - {"input", "dtype", "_stacklevel"} or len(call.node.args) > place:
            return None  # `dim` is given, or something that torch does not know
        if place and not call.node.args and "input" not in keywords:
            return None
        import ast

        if any(isinstance(a, ast.Starred) for a in call.node.args):
            return None
        text = view.short(call.node)
        return self.diagnosis(
            f"`{text}` does not say over which dimension it normalises",
            [view.culprit(Role.OPERAND, call.node, "no `dim`", call.frame)],
            "Without `dim`, torch takes dimension 0 for tensors of 0, 1 or 3 dimensions and dimension 1 otherwise. For "
            "a batch of sequences that is the batch: examples then influence one another and nothing raises.",
            Confidence.CERTAIN,
            fixes=[advice("name the dimension that must sum to one, e.g. `dim=-1` for classes in the last dimension")],
        )
