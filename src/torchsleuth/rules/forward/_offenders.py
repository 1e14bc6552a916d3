"""Which of the arguments a message of torch is about."""

from __future__ import annotations

import re

from torchsleuth.evidence_forward import Argument, FailedOperation, Operand
from torchsleuth.model import Fact, Known
from torchsleuth.rules.forward._words import argument_fact, described


def offender_facts(items: list[Operand | Argument]) -> list[Fact]:
    return [Fact(f"The message is about {_offender(item)}.", Known.OBSERVED) for item in items[:3]]


def _offender(item: Operand | Argument) -> str:
    return argument_fact(item) if isinstance(item, Argument) else f"`{item.argument}`: {described(item)}"


_ALIASES = {"self": ("input", "self", "tensor a"), "input": ("input", "self"), "other": ("other", "tensor b"), "nhead": ("nhead", "num_heads"),
            "d_model": ("d_model", "embed_dim")}  # fmt: skip
# Words of the message that are parameter names by accident.
_EVERYDAY = {"a", "b", "n", "p", "x", "y", "k", "t", "input", "self", "other", "size", "value", "end", "start", "dim", "out", "dtype",
             "tensor", "tensors", "index", "to", "source", "device", "step", "mode"}  # fmt: skip


def offenders(operation: FailedOperation, least: int = 0) -> list[Operand | Argument]:
    """The arguments that the message is about: those it names most plainly."""
    message = operation.message
    scored: list[tuple[int, int, Operand | Argument]] = []
    for position, item in enumerate((*operation.operands, *operation.arguments)):
        name = item.argument if isinstance(item, Operand) else item.name
        score = naming(name, message)
        if score:
            scored.append((-score, position, item))
    if not scored:
        got = re.search(r"\b(?:got|found|but is|value|given):? (-?\d+(?:\.\d+)?)\b", message)
        if got:
            scored = [(0, 0, item) for item in operation.arguments if item.value == got[1]]
    if scored:
        best = min(item[0] for item in scored)
        if -best < least:
            return []
        scored = [item for item in scored if item[0] == best]
    found = [item for _, _, item in sorted(scored, key=lambda entry: entry[:2])]
    whole = {item.name for item in found if isinstance(item, Argument)}  # `size` says it all, `size[0]` nothing more
    return [item for item in found if not isinstance(item, Argument) or re.sub(r"\[\d+\]$", "", item.name) in (item.name, "") or item.name.split("[")[0] not in whole]


def naming(name: str, message: str) -> int:
    """How plainly a message names an argument; 0 where it does not."""
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
