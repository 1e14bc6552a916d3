"""Where NaN or infinity in an operand came from, in words: for the rules about values."""

from __future__ import annotations

from torchsleuth.evidence_forward import Made, NotFinite, Operand, shortened
from torchsleuth.model import Fact, Known
from torchsleuth.rules.forward._words import code, inferred, made_words, seen
from torchsleuth.rules.undefined import NAN_OF, remedy


def causes(operand: Operand | None) -> list[tuple[Made | None, str]]:
    """For `creates`."""
    found = operand.not_finite if operand is not None else None
    if found is None or operand is None:
        return []
    if found.kind == "suspected":
        return [(found.made, "the only call behind it that can make NaN of finite numbers")]
    if found.kind == "made":
        return [(found.made, f"the first {found.what} is made here"), (found.infinite, "the infinity that it is made of comes from here")]
    if found.kind == "weights":
        return [(found.made, f"{shortened(found.name)} was last written here")]
    return [(found.made, f"{shortened(found.name)}, which holds {found.what}, comes from here")]


def cause_facts(operand: Operand | None) -> list[Fact]:
    found = operand.not_finite if operand is not None else None
    if found is None:
        return []
    if found.kind == "suspected":
        how = f"{NAN_OF[found.operation]} is NaN, and " if found.operation in NAN_OF else ""
        return [inferred(f"{made_words(found.made)} is behind it: {how}nothing else that it is computed from makes NaN of finite numbers.")]
    if found.kind == "made":
        facts = [f"Computed again, `{found.operation}` is the first to make {found.what}{f': {found.why}' if found.why else ''}."]
        if found.infinite is not None and found.infinite_why:
            facts.append(f"`{found.infinite.operation}` before it makes infinity: {found.infinite_why}.")
        return [Fact(fact, Known.RECOMPUTED) for fact in facts]
    held = f"{code(found.name)} holds {found.what} in {found.bad} of its {found.total} elements"
    if found.kind == "given":
        return [seen(f"{held}, first at {list(found.first)}.")] if found.total > 1 else [seen(f"{code(found.name)} is {found.what}.")]
    count, of = found.others
    rest = "" if of == 1 else f"; all {of} parameters there do" if count == of else f"; {count} of {of} parameters there do"
    facts = [seen(f"{held}{rest}.")]
    return [*facts, seen("Its gradient is not finite either.")] if found.gradient else facts


def cause_why(operand: Operand | None) -> str:
    """A sentence that says what it means."""
    found = operand.not_finite if operand is not None else None
    if found is None:
        return ""
    if found.kind == "weights":
        return (f"The weights {code(found.name)} are not finite themselves, so nothing that is computed with them is. "
                "An optimizer's step with a loss or gradient that was not finite, or a step that was much too large, leaves them so.")  # fmt: skip
    if found.kind == "given":
        return f"It is computed from {code(found.name)}, which holds {found.what} already."
    return ""


def cause_fixes(operand: Operand | None, otherwise: list[str]) -> list[str]:
    found = operand.not_finite if operand is not None else None
    if found is None:
        return otherwise
    return [_fix(found)]


def _fix(found: NotFinite) -> str:
    if found.kind == "weights":
        return "Find the step that spoilt them: check `torch.isfinite(loss)` before `backward()`, and lower the learning rate or clip the gradients if the loss grows before that."
    if found.kind == "suspected":
        return remedy(found.operation)
    if found.kind == "given":
        return f"Drop or fill what is not finite in {code(found.name)} where it is made."
    before = found.infinite
    return remedy(before.operation if before is not None and before.operation in ("div", "truediv", "true_divide", "log", "exp") else found.operation)
