"""Takes `x[a, b, …]` apart: which axis each index applies to, of which size that is, and where the index came from."""

from __future__ import annotations

import ast
import dataclasses
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry
from torchsleuth.capture.operands import Gathering, Raw
from torchsleuth.capture.samples import length_made, sample_number
from torchsleuth.evidence_forward import IndexItem, Made
from torchsleuth.model import Known


def index_items(gathering: Gathering, entry: Entry) -> tuple[tuple[IndexItem, ...], list[Raw]]:
    """The items of the failing subscript, and the tensors among them as operands (`index[0]`, …)."""
    node = entry.node
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        node = node.target
    if not isinstance(node, ast.Subscript):
        return (), []
    nodes = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    values = [entry.evaluator.value(item) for item in nodes]
    if len(nodes) == 1 and isinstance(values[0], tuple):  # `x[index]` with a tuple in a variable
        nodes, values = nodes * len(values[0]), list(values[0])
    shape = gathering.raws[0].shape if gathering.raws else ()
    marks = list(gathering.failure.operation.operands[1:]) if gathering.failure.operation is not None else []
    items: list[IndexItem] = []
    raws: list[Raw] = []
    axis: int | None = 0
    for position, (item, value) in enumerate(zip(nodes, values)):
        raw = _tensor(gathering, item, value, entry, marks)
        kind = _kind(item, value, raw)
        width = _width(kind, raw)
        if kind == "ellipsis":
            rest = [_width(*_guess(gathering, n, v, entry, marks)) for n, v in zip(nodes[position + 1 :], values[position + 1 :])]
            axis = None if None in rest or not shape else len(shape) - sum(rest)  # type: ignore[arg-type]
            own = None
        else:
            own = axis if width else None
            axis = None if axis is None or width is None else axis + width
        operand = None
        if raw is not None:
            raw.argument = f"index[{position}]"
            operand = 1 + len(raws)
            raws.append(raw)
        filename = entry.code.co_filename
        items.append(
            IndexItem(
                source.text_of(filename, source.node_range(filename, item)),
                kind,
                source.place_of_node(entry.code, item, Known.OBSERVED),
                own,
                value if type(value) is int else None,
                shape[own] if own is not None and own < len(shape) else None,
                _made(gathering, entry, item) if kind in ("int", "float", "str", "other") and not isinstance(item, ast.Constant) else None,
                raw.shape if raw is not None else (),
                operand,
                _sample(gathering, entry, item) if kind == "int" else None,
            )
        )
    return tuple(items), raws


def _made(gathering: Gathering, entry: Entry, item: ast.AST) -> Made | None:
    definitions = gathering.origins.definitions
    length = length_made(gathering.failure, definitions, entry, _reckoned(gathering, entry, item))
    made = definitions.made(entry, item) if length is None or isinstance(item, ast.Name) else None
    return dataclasses.replace(made, given=length) if made is not None and length is not None else made or length


def _sample(gathering: Gathering, entry: Entry, item: ast.AST) -> tuple[str, int, str] | None:
    reckoned = _reckoned(gathering, entry, item)
    found = sample_number(gathering.failure, entry, reckoned)
    return (*found, ast.unparse(reckoned)) if found is not None else None


def _reckoned(gathering: Gathering, entry: Entry, item: ast.AST) -> ast.AST:
    """For the `j` of `j = i + 1` the sum."""
    step = gathering.origins.definitions.step(entry, item)
    return step[1] if step is not None and step[0] is entry and isinstance(step[1], ast.BinOp) else item


def _guess(gathering: Gathering, item: ast.AST, value: typing.Any, entry: Entry, marks: list) -> tuple[str, Raw | None]:
    raw = _tensor(gathering, item, value, entry, list(marks))
    return _kind(item, value, raw), raw


def _tensor(gathering: Gathering, item: ast.AST, value: typing.Any, entry: Entry, marks: list) -> Raw | None:
    if isinstance(value, torch.Tensor):
        recomputed = entry.evaluator.is_recomputed(value)
        mark = next((mark for mark in marks if mark.ident == id(value)), None)
        if mark is None and recomputed and marks:
            mark = marks[0] if marks[0].shape == tuple(value.shape) else None
        if mark is not None:
            marks.remove(mark)
        return Raw(
            "", item, entry, value, mark or (None if recomputed else gathering._mark(value)),
            Known.RECOMPUTED if recomputed else Known.OBSERVED, recomputed=recomputed,
            device=entry.evaluator.device_of(value) if recomputed else "",
        )  # fmt: skip
    if value is UNKNOWN and marks:
        return Raw("", item, entry, None, marks.pop(0))
    if isinstance(value, list) and value and all(type(v) in (int, bool) for v in value):
        return Raw("", item, entry, torch.tensor(value, device="cpu"), None, Known.OBSERVED)
    return None


def _kind(item: ast.AST, value: typing.Any, raw: Raw | None) -> str:
    if raw is not None:
        return "mask" if raw.dtype in (torch.bool, torch.uint8) else "tensor"
    if isinstance(item, ast.Slice) or isinstance(value, slice):
        return "slice"
    if value is None:
        return "none"
    if value is Ellipsis:
        return "ellipsis"
    if type(value) is bool:
        return "mask"
    for kind, word in ((int, "int"), (float, "float"), (list, "list"), (str, "str")):
        if isinstance(value, kind):
            return word
    return "other"


def _width(kind: str, raw: Raw | None) -> int | None:
    """How many axes of the indexed tensor an item uses up."""
    if kind in ("none", "ellipsis"):
        return 0
    if kind == "mask":
        return len(raw.shape) if raw is not None else 0
    return 1 if kind in ("int", "slice", "tensor", "list") else None
