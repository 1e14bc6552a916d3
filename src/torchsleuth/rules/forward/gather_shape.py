"""Index tensors of gather, scatter, index_add and assignments whose shape does not fit."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import argument_fact, code, expr, failed, inferred, line_of, plural, seen, shape


class GatherShape(CrashRule):
    """The shape of an index, or of the values that go to it, does not fit the tensor that is indexed.

    What happened
    -------------
    `gather` and `scatter` take an index with as many dimensions as the tensor, no larger than it except along `dim`.
    `index_select` and `index_add` take a vector of positions. In `x[i, j]` the index tensors are broadcast against
    one another, and in `x[i] = v` the values against the selected part.

    Why
    ---
    Typical: labels [N] for `gather` on scores [N, C] without `unsqueeze(1)`; two index vectors of different lengths;
    values made for another number of rows.

    Example
    -------
    This raises "Index tensor must have the same number of dimensions as input tensor":

        import torch

        scores = torch.randn(4, 3)
        labels = torch.tensor([0, 2, 1, 1])
        scores.gather(1, labels)

    Fix
    ---
    `scores.gather(1, labels.unsqueeze(1)).squeeze(1)`; index vectors of one length, or shaped to be broadcast
    (`x[rows[:, None], columns]`).

    Common false explanations
    -------------------------
    "`gather` picks whole rows." It picks single elements, one for each element of the index; rows are picked by
    `x[rows]` or `index_select`. This prints two shapes:

        import torch

        x, rows = torch.randn(4, 3), torch.tensor([0, 2])
        print(x[rows].shape, x.gather(0, rows.unsqueeze(1)).shape)
    """

    name = "index-shape"
    messages = (
        r"Index tensor must have the same number of dimensions",
        r"Size does not match at dimension \d+ expected index",
        r"Expected index \[.*\] to be (smaller|no larger) than",
        r"indexing tensors could not be broadcast together",
        r"value tensor of shape .* cannot be broadcast to indexing result",
        r"[Ii]ndex is supposed to be a vector",
        r"Number of indices \(\d+\) should be equal to source\.size",
        r"index_(add|copy|reduce|fill|select)_?\(\): ",
        r"expected_numel|Index should have dimension 1 or 0",
        r"selected index k out of range",
    )
    needs = ("operation",)
    priority = 9

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        if re.search(r"scalar type|dtype", message):
            return None  # it is not about the index
        base = operation.operand("self", "input")
        index = operation.operand("index", "indices", "index[0]")
        values = operation.operand("value", "src", "source")
        facts, fixes, creates = [], [], []
        title, label = f"The index of {code(operation.place.source)} does not fit", "the shapes do not fit"
        lead = index
        role = Role.INDEX
        why = f"torch says: {message}."
        own = (expr(index, "index")) if index is not None else "index"
        if "number of dimensions" in message and base is not None and index is not None:
            title = f"{index.called} has {plural(len(index.shape), 'dimension')}, {base.called} has {len(base.shape)}"
            label = f"{shape(index.shape)} for a tensor {shape(base.shape)}"
            why = f"`{operation.name}` takes an index with as many dimensions as the tensor it works on."
            creates = [of_tensor(index)]
            if len(index.shape) + 1 == len(base.shape):
                dim = operation.argument("dim")
                fixes = [f"`{own}.unsqueeze({dim.value if dim and dim.value else 1})`."]
        elif "to be no larger" in message or "to be smaller" in message:
            label = f"{shape(index.shape)} for a tensor {shape(base.shape)}" if index and base else label
            title = f"{index.called} {shape(index.shape)} is larger than {base.called} {shape(base.shape)}" if index and base else title
            said = re.search(r"at dimension (\d+)", message)
            creates = [of_axis(index, int(said[1])), of_axis(base, int(said[1]))] if said else [of_tensor(index)]
            why = f"Except along `dim`, the index of `{operation.name}` may not be larger than the tensor it works on."
        elif "could not be broadcast" in message:
            tensors = [operand for operand in operation.operands if operand.argument.startswith("index[")]
            title = "The index tensors have different shapes: " + ", ".join(f"{t.called} {shape(t.shape)}" for t in tensors)
            label = "index tensors are paired element by element"
            why = "With several index tensors, `x[i, j]` takes the pairs (i[0], j[0]), (i[1], j[1]), …: their shapes must be equal or broadcast."
            lead, creates = None, [of_tensor(tensor) for tensor in tensors]
            fixes = ["For every combination of rows and columns: `x[rows[:, None], columns]`; for pairs, give both the same length."]
        elif "value tensor" in message:
            said = re.search(r"shape \[([\d, ]*)\] cannot be broadcast to indexing result of shape \[([\d, ]*)\]", message)
            lead, role = values, Role.OPERAND
            title = f"{values.called if values else 'The values'} [{said[1]}] cannot go into {code(operation.place.source)}, which selects [{said[2]}]" if said else title
            label = f"selects [{said[2]}]" if said else label
            why = "Assigned values are broadcast to the selected part; they may not be larger or of another size."
            creates = [of_tensor(values), of_tensor(index)]
            lead = None
        elif "selected index k" in message:
            k = operation.argument("k")
            title = f"`topk` is asked for k = {k.value if k else '?'} of {shape(base.shape) if base else 'too few'} elements"
            label, lead, role = "k is larger than the dimension", None, Role.INDEX
            if k is not None:
                facts.append(seen(f"{argument_fact(k)}."))
                creates.append((k.made, f"{k.source} = {k.value} comes from here"))
            dim = operation.argument("dim")
            creates.append(of_axis(base, dim.numbers[0] if dim is not None and dim.numbers else -1))
            why = "k may not exceed the size of the dimension that is searched."
            if base is not None and base.shape:
                axis = dim.numbers[0] if dim is not None and dim.numbers else -1
                fixes = [f"Ask for at most as many as there are: `min({k.source if k is not None and k.source else 'k'}, {expr(base, 'x')}.size({axis}))`."]
        else:
            creates = [of_tensor(index), of_tensor(values)]
            if index is not None and values is not None:
                label = f"index {shape(index.shape)}, source {shape(values.shape)}"
        if base is not None and index is not None and not fixes and index.tensor.dtype == "bool":
            facts.append(inferred("The index is boolean: a mask belongs into `x[mask]` or `masked_select`."))
        return report(self.name, operation, title=title, label=label, role=role, lead=lead, why=why, creates=creates, facts=facts, fixes=fixes)
