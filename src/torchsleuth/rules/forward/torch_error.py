"""Any error that torch raises and no other rule explains."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Argument, FailedOperation, Operand, shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._words import Culprits, argument_fact, described, failed, operand_facts, setting_facts


class TorchError(CrashRule):
    """A torch operation refused its arguments.

    What happened
    -------------
    torch raised an error that no more special rule explains. The report shows the operation as you wrote it, every
    tensor that went in with shape, dtype and device, and the argument that the message is about, where it names one.

    Why
    ---
    The message itself is the reason; the facts beside it are there to check it against. Nothing is guessed here.

    Example
    -------
    This raises "upper bound and lower bound inconsistent with step sign":

        import torch

        torch.arange(5, 1)

    Fix
    ---
    Compare what went in with what the message asks for, starting at the argument it names.

    Common false explanations
    -------------------------
    "It is a bug in torch." Nearly always it is an argument: print its shape and dtype on the line before. This prints
    what an operation would see:

        import torch

        x = torch.arange(1, 5)
        print(x.shape, x.dtype)
    """

    name = "torch-error"
    needs = ("operation",)
    priority = -100

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        named = offenders(operation)
        culprits = Culprits()
        message = first_sentence(operation.message)
        lead = next((item for item in named if isinstance(item, Operand)), None)
        label = "this operand" if lead is not None else "this call"
        argument = next((item for item in named if isinstance(item, Argument)), None)
        if argument is not None and lead is None:
            label = argument_fact(argument).replace("`", "")
        culprits.lead(operation, Role.OPERAND, label, lead)
        if argument is not None and argument.made is not None:
            culprits.create(argument.made, f"{argument.name} = {argument.value} comes from here")
        facts = [Fact(f"The message is about {_offender(item)}.", Known.OBSERVED) for item in named[:3]]
        facts += operand_facts(operation)
        shown = [item for item in operation.arguments if item.value and item not in named and item.value not in ("None", "False")]
        if shown:
            facts.append(Fact(f"Other arguments: {', '.join(argument_fact(item) for item in shown[:6])}.", Known.OBSERVED))
        facts += setting_facts(operation)
        what = shortened(operation.place.source) or operation.name
        title = f"`{operation.name}` refused its arguments in `{what}`" if operation.name else f"`{what}` failed"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), f"torch says: {message}")


def _offender(item: Operand | Argument) -> str:
    if isinstance(item, Argument):
        return argument_fact(item)
    return f"`{item.argument}`: {described(item)}"


def first_sentence(message: str, most: int = 400) -> str:
    text = message.split("\nException raised from", 1)[0].strip()
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


_ALIASES = {"self": ("input", "self", "tensor a"), "input": ("input", "self"), "other": ("other", "tensor b")}
# Words of the message that are parameter names by accident.
_EVERYDAY = {"a", "b", "n", "p", "x", "y", "k", "t", "input", "self", "other", "size", "value", "end", "start", "dim", "out", "dtype",
             "tensor", "tensors", "index", "to", "source", "device", "step", "mode"}  # fmt: skip


def offenders(operation: FailedOperation) -> list[Operand | Argument]:
    """The arguments that the message is about: those it names, most plainly named first."""
    message = operation.message
    scored: list[tuple[int, int, Operand | Argument]] = []
    for position, item in enumerate((*operation.operands, *operation.arguments)):
        name = item.argument if isinstance(item, Operand) else item.name
        score = _naming(name, message)
        if score:
            scored.append((-score, position, item))
    if not scored:
        got = re.search(r"\b(?:got|found|but is|value|given):? (-?\d+(?:\.\d+)?)\b", message)
        if got:
            scored = [(0, 0, item) for item in operation.arguments if item.value == got[1]]
    if scored:
        best = min(item[0] for item in scored)
        scored = [item for item in scored if item[0] == best]
    return [item for _, _, item in sorted(scored, key=lambda entry: entry[:2])]


def _naming(name: str, message: str) -> int:
    base = re.sub(r"\[\d+\]$", "", name)
    if not base:
        return 0
    for word in _ALIASES.get(base, (base,)):
        if re.search(rf"argument (?:#\d+ )?['\"`]?{re.escape(word)}['\"`]?|['\"`]{re.escape(word)}['\"`]", message):
            return 3
        if len(word) > 1 and word not in _EVERYDAY and re.search(rf"\b{re.escape(word)}\b", message):
            return 2
        if word in _EVERYDAY and len(word) > 2 and re.search(rf"\b{re.escape(word)}\b(?!ension)", message):
            return 1
    return 0
