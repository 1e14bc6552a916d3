"""A loss that left the graph (`.item()`, `.numpy()`, `.detach()`, `torch.tensor(...)`) before backward."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call
from torchsleuth.linter.gradients import added_parts, cuts_behind, is_cut_off, needs_gradient
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import BREAKS
from torchsleuth.model import Confidence, Role

LEAVING = {"number", "numpy", "detach", "copy"}
SAID = {
    "item": "`.item()` returns a Python number",
    "tolist": "`.tolist()` returns Python numbers",
    "numpy": "`.numpy()` leaves torch",
    "detach": "`.detach()` cuts the graph",
    "tensor": "`torch.tensor(...)` copies the values only",
    "as_tensor": "`torch.as_tensor(...)` of numbers has no graph",
    "from_numpy": "an array has no graph",
}


class LossLeavesGraph(LintRule):
    """The loss is taken out of the graph before `backward`, so its gradient is lost.

    What happened
    -------------
    Between the model's output and `backward()` the loss, or one of its terms, goes through `.item()`,
    `.tolist()`, `.numpy()`, `.detach()`, `float(...)` or `torch.tensor(...)`.

    Why
    ---
    All of these return values without history. If nothing else of the loss has a history, `backward` raises
    "element 0 of tensors does not require grad"; if only one term lost it, that term is silently not
    trained.

    Example
    -------
    This raises at backward: `torch.tensor` copied a number.

        import torch
        w = torch.ones(3, requires_grad=True)
        loss = torch.tensor((w * 2).sum().item())
        loss.backward()

    Fix
    ---
    Keep the loss a tensor until after `backward`; call `.item()` only on what is printed or logged.

    Common false explanations
    -------------------------
    "Set `requires_grad=True` on the loss." It silences the error and trains nothing: the new leaf has no
    connection to the parameters.
    """

    name = "loss-leaves-graph"
    calls = frozenset({"backward"})

    def on_call(self, call: Call, view: View) -> Found:
        loss = call.receiver
        if loss is None or call.frame.no_grad:
            return None
        if loss.kind == "number" and loss.op in ("item",) and loss.node is not None:
            return self._found(loss, call, view, "`backward` is called on it, and a Python number has no `backward`")
        if not loss.is_tensor:
            return None
        if loss.leaf and loss.op in ("tensor", "as_tensor") and (made := _made_of(loss)) is not None:
            return self._found(made, call, view, "the tensor made of it is a new leaf: `backward` runs, reaches no parameter, and nothing raises")
        if (copied := _copied(loss)) is not None:
            return self._found(copied, call, view, "the tensor made of it is a new leaf: `backward` runs, reaches no parameter, and nothing raises")
        if is_cut_off(loss):
            origin = loss if loss.grad is False else (loss.extra or {}).get("prediction", loss)
            cuts = [c for c in cuts_behind(origin) if BREAKS[c.op] in LEAVING and c.node is not None]
            deepest = cuts[-1] if cuts else None
            if deepest is not None and any(needs_gradient(i) or i.is_tensor or any(e.is_tensor for e in i.items or ()) for i in deepest.inputs):
                return self._found(deepest, call, view, 'nothing else of the loss has a history: `backward` raises "element 0 of tensors does not require grad"')
            return None
        for part in added_parts(loss):
            part = _number_behind(part)
            if part.op in ("item", "detach") and part.inputs and needs_gradient(part.inputs[0]) and part.node is not None:
                if part.op == "item" or "loss" in ast.unparse(part.node).lower():
                    return self._found(part, call, view, "the other terms are trained, this one is not, and nothing raises")
        return None

    def _found(self, cut, call: Call, view: View, consequence: str):
        said = SAID.get(cut.op, f"`{cut.op}` has no gradient")
        if isinstance(cut.node, ast.Call) and isinstance(cut.node.func, ast.Name):
            said = f"`{cut.node.func.id}(...)` returns a Python number"
        return self.diagnosis(
            f"the gradient of `{view.short(call.node.func.value, 40)}` is lost at `{view.short(cut.node, 50)}`",
            [
                view.culprit(Role.LOST_GRAD, cut.node, said, call.frame),
                view.culprit(Role.CALL, call.node, "backward starts here", call.frame),
            ],
            f"{said[0].upper()}{said[1:]}, without the history that `backward` follows; {consequence}.",
            Confidence.CERTAIN,
            fixes=[advice("keep it a tensor until after `backward`; take `.item()` only of what is printed")],
        )


def _number_behind(part):
    """`0.5 * other.item()` -> the `.item()`."""
    for _ in range(4):
        if part.kind != "number" or part.op == "item":
            return part
        part = next((i for i in part.inputs if i.kind == "number" and i.op), part)
    return part


def _copied(loss):
    """`torch.tensor(losses, requires_grad=True).sum()`: the leaf that is only added up, where what it is made of is no constant.

    Nobody optimises that: its gradient is the same whatever is in it.
    """
    reduced = False
    for _ in range(6):
        parts = [i for i in loss.inputs if i.is_tensor]
        if loss.op in ("sum", "mean", "neg", "div", "mul") and len(parts) == 1 and all(i.kind == "number" or i.is_tensor for i in loss.inputs):
            reduced, loss = reduced or loss.op in ("sum", "mean"), parts[0]
    if not reduced or not loss.leaf or loss.op not in ("tensor", "as_tensor") or not isinstance(loss.node, ast.Call) or not loss.node.args:
        return None
    given = loss.node.args[0]
    if isinstance(given, (ast.List, ast.Tuple)):
        return _made_of(loss)
    return loss if isinstance(given, (ast.Name, ast.Attribute, ast.ListComp)) and not (isinstance(given, ast.Name) and _is_literal(loss.inputs)) else None


def _is_literal(inputs) -> bool:
    """Numbers written out: data, or the start of something that is optimised."""
    return any(isinstance(i.node, (ast.List, ast.Tuple, ast.Constant)) and not any(isinstance(n, (ast.Name, ast.Call)) for n in ast.walk(i.node))
               and not (i.extra or {}).get("any") for i in inputs)  # fmt: skip


def _made_of(leaf):
    """What `torch.tensor(...)` copied, where that was computed: the tensor made of it, or the `.item()` inside."""
    source = leaf.inputs[0] if leaf.inputs else None
    if source is None:
        return None
    source = _number_behind(source)
    if source.kind == "number":
        return source if source.op == "item" and source.inputs and source.node is not None else None
    parts = source.items or [] if source.kind == "list" else [source]
    return leaf if any(p.is_tensor and (p.inputs or p.op == "model") for p in parts) else None
