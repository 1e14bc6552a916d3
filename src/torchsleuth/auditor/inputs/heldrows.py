"""How many positions of each row hold data, told by what stands there: padding is the one id, or the zeros, that rows end in."""

from __future__ import annotations

import ast
import os

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.owners import assignments
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of

FEWEST = 3  # rows, of which some may stand in their place by chance


def held(leaf: Leaf, axis: int, pad_ids: set[int]) -> torch.Tensor | None:
    """The number of each row, up to its padding; None where padding stands between words, too, or no row ends in it."""
    values = leaf.values
    if values.is_floating_point():
        data = (values != 0).movedim(axis, 1).flatten(2).any(2) if values.dim() > 2 else values != 0
    elif values.dim() == 2 and len(pad_ids) < 2:
        data = values != next(iter(pad_ids), 0)
    else:
        return None
    counts = (data * torch.arange(1, data.shape[1] + 1, device=data.device)).amax(1)
    within = torch.arange(data.shape[1], device=data.device) < counts[:, None]
    plain = values.is_floating_point() or torch.equal(data, within)
    return counts if plain and bool((counts > 0).all()) and bool((counts < data.shape[1]).any()) else None


def reordered(lengths: Leaf, leaf: Leaf, pad_ids: set[int]) -> torch.Tensor | None:
    """What the rows hold, where these are the very numbers, and not in the order of the rows."""
    for axis in range(1, min(leaf.tensor.dim(), 3)):
        rows = held(leaf, axis, pad_ids)
        if rows is None or rows.shape != lengths.tensor.shape or rows.numel() < FEWEST:
            continue
        given = lengths.values.to(rows.device, rows.dtype)
        if int((given != rows).sum()) > 1 and torch.equal(given.sort().values, rows.sort().values):
            return rows
    return None


def lengths_in_another_order(call: Call, pad_ids: set[int]) -> list[InputFact]:
    """Lengths that are right for other rows, where no input says in which order these are to be put."""
    leaves = batches.sequences(call)
    for leaf in leaves:
        for lengths in call.leaves:
            if not batches.is_lengths(lengths, max(leaf.tensor.shape)) or (rows := reordered(lengths, leaf, pad_ids)) is None:
                continue
            others = [found for other in leaves if other is not leaf and (found := held(other, 1, pad_ids)) is not None and found.shape == rows.shape]
            if _order_is_given(call, rows.numel()) or any(torch.equal(found.to(lengths.values.device, lengths.values.dtype), lengths.values) for found in others):
                continue
            given = lengths.values.to(rows.device)
            wrong = (given != rows).nonzero().flatten().tolist()
            row = wrong[0]
            numbers = f"`{lengths.name}` is {given.tolist()}, and the rows of `{leaf.name}` hold {rows.tolist()} positions before their padding: the same numbers in another order; " if len(rows) <= 16 else \
                f"`{lengths.name}` holds the numbers of positions of the rows of `{leaf.name}` in another order: "  # fmt: skip
            text = f"{numbers}`{lengths.name}[{row}]` is {int(given[row])}, and row {row} holds {int(rows[row])}"
            return [InputFact("lengths-reordered", lengths.name, text, int(given[row]), (row,), count=len(wrong))]
    return []


def _order_is_given(call: Call, size: int) -> bool:
    """An input says how the samples are to be put in order."""
    whole = torch.arange(size, device="cpu")
    return any(leaf.tensor.shape == (size,) and not leaf.tensor.is_floating_point() and torch.equal(leaf.values.cpu().long().sort().values, whole) for leaf in call.leaves)


def listed_at(made: Site | None) -> Site | None:
    """Of `torch.tensor(lengths)`, the one expression of that function that makes the list; else the place itself."""
    tree = syntax_of(os.path.abspath(made.span.file)) if made is not None else None
    if made is None or tree is None:
        return made
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.lineno <= made.span.line <= (node.end_lineno or 0)]
    around = functions[-1] if functions else tree
    calls = [node for node in ast.walk(around) if isinstance(node, ast.Call) and (node.lineno, node.col_offset + 1) == (made.span.line, made.span.column)]
    given = calls[0].args[0] if calls and calls[0].args else None
    values = [value for target, value in assignments(around) if isinstance(given, ast.Name) and ast.unparse(target) == given.id]
    return site_of_node(os.path.abspath(made.span.file), values[0], made.function) if len(values) == 1 else made
