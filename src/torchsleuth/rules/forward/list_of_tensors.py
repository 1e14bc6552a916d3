"""Python's own indexing errors on a list of tensors or on a tensor's shape."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, failed, line_of, seen, shape


class ListOfTensors(CrashRule):
    """A Python list of tensors, or the shape of a tensor, is indexed or unpacked in a way it does not allow.

    What happened
    -------------
    A list of tensors is a Python list, not a tensor: `rows[:, 0]` is a TypeError, `rows[5]` an IndexError where there
    are fewer elements. The shape of a tensor is a tuple with one entry for each dimension: `x.shape[2]`, or
    `batch, time, features = x.shape`, needs three dimensions.

    Why
    ---
    The tensors were collected in a list and never stacked; or the tensor has fewer dimensions than the code expects.

    Example
    -------
    This raises "list indices must be integers or slices, not tuple":

        import torch

        rows = [torch.zeros(3), torch.ones(3)]
        rows[:, 0]

    Fix
    ---
    `torch.stack(rows)[:, 0]`; or bring the tensor to the number of dimensions that is expected.

    Common false explanations
    -------------------------
    "torch does not support that index." On a tensor it does. This prints a tensor:

        import torch

        print(torch.stack([torch.zeros(3), torch.ones(3)])[:, 0])
    """

    name = "list-of-tensors"
    messages = (r"(list|tuple) (assignment )?index out of range", r"(list|tuple) indices must be integers or slices", r"values to unpack")
    needs = ("operation",)
    priority = 20

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None or not operation.container:
            return None
        message = line_of(operation.message)
        item = operation.index[0] if operation.index else None
        facts = [seen(f"It is {operation.container}.")]
        creates = []
        if "must be integers" in message:
            title = f"{code(operation.place.source)} indexes {operation.container.split(' of ')[0]} of tensors as if it were a tensor"
            fixes = ["Stack first: `torch.stack(tensors)[...]`, if all have one shape."]
        elif "unpack" in message:
            said = re.search(r"expected (\d+)(?:, got (\d+))?", message)
            title = f"{said[1] if said else 'Another number of'} values are to be unpacked from {operation.container}"
            fixes = ["Bring the tensor to the number of dimensions that is unpacked here, or unpack what is there."]
            if re.match(r"\d+ ", operation.container):
                named = operation.container.partition(": ")[2]
                fixes = [f"Unpack what is there: `{named} = ...`." if named else "Unpack as many values as there are, or hand over as many as are unpacked here."]
            elif "returned by" in operation.container:
                facts.append(seen("Unpacking a tensor goes along its first dimension: one value for each row."))
                fixes = ["Take the tensor as one value, or return as many values as are unpacked here."]
            if operation.container.endswith(("a GRU", "a RNN")):
                facts.append(seen("A GRU or RNN returns the output and one state; a cell state, as in `output, (h, c)`, has only the LSTM."))
                fixes = ["Unpack one state: `output, h = ...`."]
        else:
            title = f"{code(operation.place.source)} is out of range: {operation.container}"
            count = re.match(r"a (?:list|tuple) of (\d+) tensors|the shape .*, (\d+) sizes", operation.container)
            most = int(count[1] or count[2]) - 1 if count else None
            fixes = [f"Positions go from 0 to {most} here; the last one is also -1." if most is not None else "Positions count from 0; the last one is -1."]
            if item is not None and item.value is not None and item.source != str(item.value):
                facts.insert(0, seen(f"`{item.source}` is {item.value}."))
                creates.append((item.made, f"{item.source} = {item.value} comes from here"))
        base = operation.operands[0] if len(operation.operands) == 1 and not operation.container.startswith(("a list", "a tuple")) else None
        results = operation.container_made is not None and operation.container_made.operation == "results"
        creates.append((operation.container_made, "this is what it hands over" if results else "the list was made here"))
        if base is not None:
            creates.append((base.made, f"{base.called if base.source else 'the tensor'} {shape(base.shape)} comes from here"))
        return report(self.name, operation, title=title, label=operation.container, role=Role.INDEX, why=f"Python says: {message}", creates=creates,
                      facts=facts, fixes=fixes, shown=3, mentioned=[base] if base is not None and not base.source else [])  # fmt: skip
