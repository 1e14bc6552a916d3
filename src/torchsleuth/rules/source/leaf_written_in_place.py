"""An in-place write to a leaf tensor or parameter that requires a gradient."""

from __future__ import annotations

from torchsleuth.linter.events import Write
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.recording import is_shown_to_record
from torchsleuth.model import Confidence, Role


class LeafWrittenInPlace(LintRule):
    """A leaf tensor that requires a gradient is written in place, which torch refuses.

    What happened
    -------------
    A tensor made with `requires_grad=True`, or an `nn.Parameter`, is changed in place outside
    `torch.no_grad()`. torch raises "a leaf Variable that requires grad is being used in an in-place operation"
    (or the same of a view of one).

    Why
    ---
    The gradient is collected for the value the leaf had when the graph began. After a write there would be no
    leaf left to collect it for: the tensor would become the result of an operation.

    Example
    -------
    This raises at `index_put_`, not in backward.

        import torch
        x = torch.zeros(5, requires_grad=True)
        x.index_put_((torch.tensor([1, 3]),), torch.tensor([1.0, 2.0]))

    Fix
    ---
    To compute with the changed values, change a copy: `x = x.clone()` first, or the out-of-place form
    (`x.index_put(...)`). To change the parameter itself, write under `with torch.no_grad():`.

    Common false explanations
    -------------------------
    "The indices have no derivative." Indices never need one. "Detaching the indices (or the source) helps." It
    changes nothing: the leaf is what may not be written to.
    """

    name = "leaf-written-in-place"

    def on_write(self, write: Write, view: View) -> Found:
        target = write.target
        if not target.leaf or target.grad is not True or write.no_grad or write.how == "data":
            return None
        if write.text in write.frame.frozen or "(" in write.text:  # p.mul_(…).add_(…): the first write has been spoken of
            return None
        if target.op in ("parameter", "Parameter") and (view.has("requires_grad_(False)") or view.has("requires_grad = False")):
            return None  # which of the parameters were frozen is not known
        if not is_shown_to_record(write.frame, view) and not _is_made_here(write):
            return None
        copy = f"`{write.text} = {write.text}.clone()`" if write.text.isidentifier() else f"a copy (`{write.text}.clone()`)"
        return self.diagnosis(
            f"`{view.short(write.node, 60)}` writes in place to a leaf that requires a gradient",
            [view.culprit(Role.MUTATE, write.node, f"`{write.text}` is a leaf that requires grad", write.frame)],
            f"`{write.text}` is {describe(target)}, so it is a leaf of the graph. torch raises "
            '"a leaf Variable that requires grad is being used in an in-place operation" here.',
            Confidence.CERTAIN,
            fixes=[
                advice(f"to compute with the changed values: write to {copy}, or use the out-of-place form"),
                advice("to change the tensor itself: write under `with torch.no_grad():`"),
            ],
        )


def describe(value) -> str:
    if value.op in ("Parameter", "parameter"):
        return "a parameter"
    return "made with `requires_grad=True`"


def _is_made_here(write: Write) -> bool:
    """Made and written in one function, where nothing switches recording off: no caller is asked."""
    made, function = write.target.node, write.frame.node
    if write.target.op == "parameter" or not write.text.isidentifier() or made is None or not hasattr(function, "lineno"):
        return False
    return function.lineno < made.lineno <= write.node.lineno <= function.end_lineno
