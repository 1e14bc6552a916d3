"""A write into a tensor whose value an earlier operation kept for backward."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Hazard
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.recording import is_shown_to_record, only_serves
from torchsleuth.model import Confidence, Role

INPLACE_FORMS = ("module", "inplace-argument")


class InplaceOverSaved(LintRule):
    """A tensor is written in place after an operation kept it for backward.

    What happened
    -------------
    An operation needs one of its tensors again to compute its gradient, and kept it. A later line writes into
    that same memory. Backward then raises "one of the variables needed for gradient computation has been
    modified by an inplace operation".

    Why
    ---
    Which tensors are kept depends on the operation: `x ** 2`, `x.log()`, `x * y`, `x.min()` keep their input,
    `x.exp()`, `x.sigmoid()`, `x.sqrt()`, `relu` keep their *result*, and `x + 1` or `x.sum()` keep nothing.
    Every in-place write raises the tensor's version, and backward compares versions. A view (`x[0]`,
    `x.view(...)`) shares memory and version with its base.

    Example
    -------
    This raises in backward: `a ** 2` kept `a`, and the next line wrote into it.

        import torch
        x = torch.ones(3, requires_grad=True)
        a = x * 2
        b = a ** 2
        a += 1
        b.sum().backward()

    Fix
    ---
    Write the out-of-place form (`a = a + 1`), which makes a new tensor and leaves the kept one alone, or
    change a `clone()`.

    Common false explanations
    -------------------------
    "In-place writes break the graph." They do not: they are recorded, and are fine wherever nothing kept the
    old value. `b = a.exp(); a += 1` runs, because `exp` kept its result and not `a`.
    """

    name = "inplace-over-saved"

    def on_hazard(self, hazard: Hazard, view: View) -> Found:
        write = hazard.write
        if write.how in INPLACE_FORMS or write.how == "data" or not reportable(hazard) or only_serves(view):
            return None
        if (hazard.feeds or not hazard.certain and _is_handed_back(write)) and not is_shown_to_record(write.frame, view):
            return None  # an argument normalised in place: whoever does that has no graph, where nothing shows one
        if write.op == "copy" and write.target.op == "argument" and not is_shown_to_record(write.frame, view):
            return None  # `state.copy_(state * decay + x)`: a state that is carried from call to call where nothing is recorded
        return self.found(hazard, view)

    def found(self, hazard: Hazard, view: View):
        write, save = hazard.write, hazard.save
        kept = "its result" if save.what == "r" else "this value"
        operation = view.short(save.node, 50)
        target = write.text or "it"
        return self.diagnosis(
            f"`{view.short(write.node, 50)}` overwrites what `{operation}` kept for backward",
            [
                view.culprit(Role.MUTATE, write.node, f"writes into `{target}` in place", write.frame),
                *(view.culprit(Role.SAVE, s.node, f"keeps {'its result' if s.what == 'r' else 'this value'} for its gradient", write.frame)
                  for s in sorted((save, *hazard.others[:3]), key=lambda s: s.node.lineno)),
            ],
            f"{'' if hazard.certain or hazard.trained else f'If `{target}` needs a gradient: '}`{operation}` needs {kept} again in backward. The later write changes that memory, and backward raises "
            '"one of the variables needed for gradient computation has been modified by an inplace operation".',
            Confidence.CERTAIN if hazard.certain else Confidence.LIKELY,
            fixes=[advice(out_of_place(write, target))],
        )


def reportable(hazard: Hazard) -> bool:
    """Known to need a gradient; or an argument that is a tensor, in the plain form `y = x ** 2; x += 1`."""
    write = hazard.write
    if write.target.assumed and not hazard.trained or (write.target.leaf and write.target.grad and not write.no_grad):
        return False  # a write to a leaf raises by itself
    if hazard.certain or hazard.trained:
        return True
    is_argument = write.target.op == "argument" and write.target.grad is None and write.target.dtype not in ("int", "bool")
    in_function = write.frame.cls is not None and write.frame.cls.is_function
    return write.how == "augmented" and write.op in ("add", "sub", "mul", "div") and is_argument and not in_function


def _is_handed_back(write) -> bool:
    """`def update_(H, y): ...; H -= term; return H`: the caller's tensor is meant to change."""
    function = write.frame.node
    if getattr(function, "name", "").endswith("_"):
        return True
    return any(isinstance(n, ast.Return) and n.value is not None and any(isinstance(m, ast.Name) and m.id == write.name for m in ast.walk(n.value))
               for n in ast.walk(function))  # fmt: skip


def out_of_place(write, target: str) -> str:
    if write.how == "augmented":
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}.get(write.op, "")
        if sign:
            return f"make a new tensor instead: `{target} = {target} {sign} ...`"
    if write.how == "item":
        return f"write into a copy: `{target} = {target}.clone()` before the write, or use `torch.where` / `masked_fill`"
    return f"use the out-of-place form (`.{write.op}(...)` instead of `.{write.op}_(...)`), or change a `clone()`"
