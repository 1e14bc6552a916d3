"""Something asked of a gradient that is not there."""

from __future__ import annotations

from torchsleuth.evidence import AbsentGradient, Evidence
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first


class GradIsNone(CrashRule):
    """`x.grad` is None, and the program goes on as if it were a tensor.

    What happened
    -------------
    Python met None where a gradient was expected: `x.grad.abs()`, `w -= lr * w.grad`. Nothing has been written into `x.grad`.

    Why
    ---
    `backward()` writes into `.grad` of leaves that require grad, and only of those that what it was called on was computed from.
    So it stays None for a tensor that does not require grad; for a tensor that is itself a result (`x = x * 2`, `w = w - lr * g`,
    `x.to(device)`), whose gradient passes through and is not kept; for a parameter that took no part, or whose history was cut off;
    and after `zero_grad()`, which sets it to None again.

    Example
    -------
    In the second round `w` is the result of a subtraction, no leaf any more. This raises
    "unsupported operand type(s) for *: 'float' and 'NoneType'":

        import torch

        w = torch.ones(3, requires_grad=True)
        for _ in range(2):
            loss = (w * 2).sum()
            loss.backward()
            w = w - 0.1 * w.grad

    Fix
    ---
    Make it a leaf that requires grad before it is used: `x = x.detach().requires_grad_()`; update leaves in place under
    `torch.no_grad()`; call `x.retain_grad()` for the gradient of a result; and skip what took no part: `if p.grad is not None`.

    Common false explanations
    -------------------------
    "Set `x.requires_grad = True` before reading `x.grad`." It must be set before `x` is used: what was computed before that does
    not lead back to it. This prints None:

        import torch

        x = torch.ones(3)
        w = torch.ones(3, requires_grad=True)
        loss = (w * x).sum()
        x.requires_grad = True
        loss.backward()
        print(x.grad)
    """

    name = "grad-is-none"
    messages = (r"NoneType",)
    needs = ("absent_gradient",)
    priority = 35

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.absent_gradient
        if found is None:
            return None
        why = _BECAUSE[found.reason](found)
        return Diagnosis(
            self.name,
            f"{_what(found)} is None: {why}",
            Confidence.LIKELY if found.reason == "unreached" else Confidence.CERTAIN,
            tuple(_culprits(found)),
            tuple(_facts(found)),
            _WHY[found.reason](found),
            (Fix(_FIX[found.reason](found), Applicability.DISPLAY_ONLY),),
        )


def _what(found: AbsentGradient) -> str:
    if found.reason == "returned":
        return f"The gradient of {_tensor(found)} that `{short(found.asked.source, 50)}` returned"
    return f"`{short(found.tensor.name, 40)}.grad`" if found.tensor.name else f"`{short(found.asked.source, 40)}`"


def _tensor(found: AbsentGradient) -> str:
    return found.tensor.called


def _backward(found: AbsentGradient) -> str:
    return f"`{short((found.backward.via or found.backward).source, 50)}`" if found.backward is not None else "backward"


def _place(found: AbsentGradient, which: str) -> str:
    place = getattr(found, which)
    return f"`{short((place.via or place).source, 50)}`" if place is not None else ""


def _cut(found: AbsentGradient) -> str:
    cut = found.cuts[0]
    return f"`{short((cut.wrapper or cut.place).source, 50)}`"


_BECAUSE = {
    "constant": lambda f: f"{_tensor(f)} does not require grad",
    "computed": lambda f: f"{_tensor(f)} is no leaf, but the result of {_place(f, 'made') or 'an operation'}",
    "cleared": lambda f: f"{_place(f, 'other')} cleared it after {_backward(f)}",
    "before": lambda f: "no backward has run yet",
    "elsewhere": lambda f: f"no backward has run, and {_place(f, 'other')} returns gradients without storing them",
    "unused": lambda f: f"nothing that {_backward(f)} went through was computed from {_tensor(f)}",
    "late": lambda f: f"{_tensor(f)} did not require grad when it was used, {_place(f, 'other')} came after that",
    "cut": lambda f: f"its way to what {_backward(f)} was called on is cut at {_cut(f)}",
    "aside": lambda f: f"what was computed from {_tensor(f)} did not go into what {_backward(f)} was called on",
    "returned": lambda f: f"the output was not computed from {_tensor(f)}",
    "unreached": lambda f: f"no backward has reached {_tensor(f)} since it was last cleared",
}

_RECORDED = "Backward goes back along recorded operations, and writes into `.grad` of the leaves that it comes to."
_WHY = {
    "constant": lambda f: f"Autograd records what happens to a tensor only if it requires grad when it is used. {upper_first(_tensor(f))} does not, so backward "
    "computes no gradient for it, and its `.grad` stays None.",
    "computed": lambda f: f"Backward keeps gradients only in leaves: tensors that were made directly and require grad. {upper_first(_tensor(f))} was computed from others, "
    "so its gradient was passed on to them and not kept.",
    "cleared": lambda f: "`zero_grad()` sets gradients to None (`set_to_none=True`, the default). What reads them must come before it.",
    "before": lambda f: "`.grad` is None until a backward writes into it.",
    "elsewhere": lambda f: "`torch.autograd.grad` returns the gradients; only `backward()` writes them into `.grad`.",
    "unused": lambda f: f"{_RECORDED} {upper_first(_tensor(f))} requires grad and is a leaf, but none of the operations since the backward before was given it.",
    "late": lambda f: f"Operations are recorded for tensors that require grad at that moment. {upper_first(_tensor(f))} did not yet, so nothing leads back to it.",
    "cut": lambda f: f"{_RECORDED} {upper_first(_tensor(f))} was used on the way there, but {_cut(f)} gave a result without history, so backward ends there.",
    "aside": lambda f: f"{_RECORDED} {upper_first(_tensor(f))} was used, but no recorded operation leads from its results to what was differentiated.",
    "returned": lambda f: "With `allow_unused=True`, `torch.autograd.grad` gives None for inputs that took no part in computing the output.",
    "unreached": lambda f: f"{_RECORDED} {upper_first(_tensor(f))} requires grad and is a leaf, and its `.grad` is None: it took no part in what was differentiated, or its history was cut off.",
}


def _skip(found: AbsentGradient) -> str:
    return f"Use {_tensor(found)} in what is differentiated, or skip what took no part: `if {found.owner or 'p'}.grad is not None`."


def _ask(found: AbsentGradient) -> str:
    if not found.tensor.dtype.startswith(("float", "bfloat", "complex")):
        return f"{upper_first(_tensor(found))} has dtype {found.tensor.dtype}: only real and complex tensors can have a gradient."
    if found.tensor.kind == "parameter":
        return f"Train {_tensor(found)} (`requires_grad_(True)`), or skip what is frozen: `if {found.owner or 'p'}.grad is not None`."
    return f"`{found.owner or 'x'} = {found.owner or 'x'}.detach().requires_grad_()` before it is used."


_FIX = {
    "constant": lambda f: _ask(f),
    "computed": lambda f: f"`{f.owner or 'x'}.retain_grad()` after it is made, or make it a leaf: `.detach().requires_grad_()`.",
    "cleared": lambda f: f"Read the gradient before {_place(f, 'other')}.",
    "before": lambda f: "Call `backward()` first.",
    "elsewhere": lambda f: "Use what `torch.autograd.grad` returns, or call `backward()`.",
    "unused": _skip,
    "late": lambda f: f"Ask for the gradient before {_tensor(f)} is used.",
    "cut": lambda f: f"Take {_cut(f)} off the way from {_tensor(f)} to what is differentiated.",
    "aside": _skip,
    "returned": lambda f: "Skip it (`if g is not None`), or ask for zeros: `materialize_grads=True`.",
    "unreached": _skip,
}


def _culprits(found: AbsentGradient) -> list[Culprit]:
    name = _tensor(found)
    wanted: list[tuple[object, Role, str]] = [(cut.wrapper or cut.switch or cut.place, Role.LOST_GRAD, "gives a result without history") for cut in found.cuts]
    if found.reason == "computed":
        wanted.append((found.made, Role.CREATE, f"made {name}: a result, no leaf"))
    wanted += [(place, Role.LOST_GRAD, "asks for no gradient") for place in found.frozen_at]
    if found.reason == "cleared":
        wanted.append((found.other, Role.CALL, "set the gradient to None"))
    wanted.append((found.asked, Role.OPERAND, "is None" if found.reason != "returned" else f"returned None for {name}"))
    wanted.append((found.use, Role.OPERAND, "is given None"))
    if found.reason == "constant":
        wanted.append((found.made, Role.CREATE, f"made {name}, which does not require grad"))
    wanted.append((found.layer, Role.CREATE, f"made the layer of {name}"))
    labels = {"elsewhere": "returns its gradients", "late": "asks for it too late", "aside": f"uses {name}"}
    wanted.append((found.other if found.reason in labels else None, Role.CALL, labels.get(found.reason, "")))
    wanted.append((found.backward, Role.CALL, "the backward before"))
    culprits: list[Culprit] = []
    for place, role, label in wanted:
        place = place.via or place if place is not None else None
        if place is not None and not any(_overlaps(place, culprit) for culprit in culprits):
            culprits.append(place.culprit(role, label))
    return culprits


def _overlaps(place: object, culprit: Culprit) -> bool:
    one, other = place.span, culprit.span
    return one.file == other.file and one.line <= other.end_line and other.line <= one.end_line


def _facts(found: AbsentGradient) -> list[Fact]:
    tensor = found.tensor
    kind = "a leaf" if tensor.is_leaf else "no leaf (it has a grad_fn)"
    facts = [Fact(f"{upper_first(tensor.called)} has shape {tensor.size}, dtype {tensor.dtype}, requires_grad={tensor.requires_grad}, and is {kind}.", Known.OBSERVED)]
    if found.leaves:
        facts.append(Fact(f"It was computed from {', '.join(f'`{name}`' for name in found.leaves)}.", Known.OBSERVED))
    if found.alike:
        facts.append(Fact(f"Also without a gradient: {', '.join(f'`{name}`' for name in found.alike)}.", Known.OBSERVED))
    for cut in found.cuts:
        facts.append(Fact(f"`{short((cut.place.via or cut.place).source, 60)}` was given a tensor that requires grad, and its result does not.", Known.OBSERVED))
    return facts


__all__ = ("GradIsNone",)
