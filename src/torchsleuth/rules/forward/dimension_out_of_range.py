"""More indices, or a higher dimension number, than the tensor has dimensions."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_tensor, squeezed, squeezer
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import argument_fact, code, failed, line_of, plural, seen, shape


class DimensionOutOfRange(CrashRule):
    """An operation names a dimension that the tensor does not have.

    What happened
    -------------
    A tensor of shape [3, 4] has the dimensions 0 and 1 (or -2 and -1). The operation asked for another one: `x[0, 1, 2]`
    has three indices for two dimensions, `x.sum(2)` names a third.

    Why
    ---
    The tensor has fewer dimensions than the code expects: a missing batch dimension, a `squeeze()` that removed one
    of size 1 too many, an indexing or reduction before it that took one away, a 0-dimensional loss that is indexed.

    Example
    -------
    This raises "too many indices for tensor of dimension 2":

        import torch

        x = torch.zeros(3, 4)
        x[0, 1, 2]

    Fix
    ---
    Look at the shape where the tensor is made; add the missing dimension there (`unsqueeze(0)`), name the dimension in
    `squeeze(dim)`, or use negative dimensions, which count from the end.

    Common false explanations
    -------------------------
    "The tensor is too small." Its sizes do not matter, only how many dimensions it has. This prints a number:

        import torch

        print(torch.zeros(1, 1, 1)[0, 0, 0].item())
    """

    name = "dimension-out-of-range"
    messages = (
        r"too many indices for tensor of dimension",
        r"Dimension out of range \(expected to be in range of",
        r"Dimension specified as -?\d+ but tensor has no dimensions",
        r"invalid index of a 0-dim tensor",
        r"cannot be applied to a 0-dim tensor",
        r"iteration over a 0-d tensor",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        tensor = operation.operands[0] if operation.operands else None
        called = tensor.called if tensor is not None else "the tensor"
        rank = len(tensor.shape) if tensor is not None else None
        facts, creates = squeezed(tensor), [of_tensor(tensor), (squeezer(tensor), "this drops every dimension of size 1")]
        asked = re.search(r"range of \[(-?\d+), (-?\d+)\], but got (-?\d+)", message)
        if asked:
            low, high, got = (int(asked[k]) for k in (1, 2, 3))
            argument = next((a for a in operation.arguments if got in a.numbers and a.name.startswith(("dim", "axis", "start", "end", "source"))), None)
            argument = argument or next((a for a in operation.arguments if got in a.numbers), None)
            title = f"{code(operation.place.source)} names dimension {got}; legal: {low}…{high}"
            label = f"dimension {got} of a tensor with {plural(high + 1, 'dimension')}" if rank is None else f"dimension {got}; {called.strip('`')} has {plural(rank, 'dimension')}"
            if argument is not None:
                facts.append(seen(f"{argument_fact(argument)}; legal: {low}…{high}."))
                creates.insert(0, (argument.made, f"{argument.source} = {argument.value} comes from here"))
            why = f"{called} has {plural(rank if rank is not None else high + 1, 'dimension')}{f', shape {shape(tensor.shape)}' if tensor else ''}, so dimensions go from {low} to {high}."
            return report(self.name, operation, title=title, label=label, role=Role.INDEX, why=why, creates=creates, facts=facts,
                          fixes=[_fix(called)])  # fmt: skip
        if "0-dim" in message or "0-d tensor" in message or "no dimensions" in message:
            title = f"{called} is a single number (shape []), and has no dimension to index"
            why = f"{called} has no dimensions. A reduction or an index before it took the last one away."
            return report(self.name, operation, title=title, label="a tensor with no dimensions", role=Role.INDEX, why=why, creates=creates, facts=facts,
                          fixes=[f"Use {called} as it is, or `{called.strip('`')}.item()` for the Python number."])  # fmt: skip
        key = re.search(r"\[\s*[rbu]?(['\"])(\w+)\1\s*\]$", operation.place.source)
        if key and tensor is not None:
            title = f"{called} is a tensor {shape(tensor.shape)}, and is asked for {key[2]!r} like a dictionary"
            why = f"{called} has no names. A text of {plural(len(key[2]), 'letter')} is taken for as many indices, and {called} has {plural(len(tensor.shape), 'dimension')}."
            return report(self.name, operation, title=title, label="a name for an index", role=Role.INDEX, why=why, creates=creates, facts=facts,
                          fixes=[f"Use {called} itself, or hand over a dictionary with {key[2]!r} in it where {called} is made."])  # fmt: skip
        used = sum(1 for item in operation.index if item.kind in ("int", "slice", "tensor", "list"))
        used += sum(len(item.shape) for item in operation.index if item.kind == "mask")
        count = f"{used} indices" if used else "too many indices"
        have = rank if rank is not None else int(re.search(r"dimension (\d+)", message)[1])  # type: ignore[index]
        title = f"{code(operation.place.source)} has {count} for {called}, which has {plural(have, 'dimension')}"
        why = f"{called} has shape {shape(tensor.shape)}: at most {plural(have, 'index', 'indices')}." if tensor else (
            f"A tensor of {plural(have, 'dimension')} takes at most {plural(have, 'index', 'indices')}.")  # fmt: skip
        return report(self.name, operation, title=title, label=f"{count} for {plural(have, 'dimension')}", role=Role.INDEX, why=why, creates=creates, facts=facts,
                      fixes=[_fix(called)])  # fmt: skip


def _fix(called: str) -> str:
    return f"Check the shape of {called} where it is made: a dimension is missing there (`unsqueeze`, no bare `squeeze()`), or one index too many is used here."
