"""Samples that are slices of one tensor, `self.series[i : i + self.size]`, and those at its end, which are cut off there.

Only where plain sums of the sample's number and of numbers that the dataset holds tell how far each slice reaches.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.evaluate import UNKNOWN, plain_attribute
from torchsleuth.capture.failure import Failure
from torchsleuth.capture.returns import returned_part
from torchsleuth.capture.samples import innermost
from torchsleuth.evidence_forward import CutShort, Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of


class _Slice(typing.NamedTuple):
    node: ast.Subscript
    base: str  # `self.series`
    size: int
    reach: int  # how far behind the number of the sample it ends
    terms: tuple[str, ...]  # what is added to that number: `self.past`, `- 1`


def cut_short(failure: Failure) -> CutShort | None:
    """The first of the samples at hand whose slice ends behind the last value; with what the dataset says of its length."""
    entry = next((e for e in failure.entries if e.code.co_name == "fetch" and e.origin is Origin.TORCH and "fetch" in e.code.co_filename), None)
    scope = locals_of(entry.frame) if entry is not None else {}
    numbers, dataset = scope.get("possibly_batched_index"), getattr(scope.get("self"), "dataset", None)
    if not isinstance(numbers, (list, tuple)) or any(type(number) is not int for number in numbers) or innermost(dataset) is not dataset:
        return None
    getter, length = (inspect.getattr_static(type(dataset), name, None) for name in ("__getitem__", "__len__"))
    if not _is_programs(getter) or not _is_programs(length):
        return None
    slices = _slices(getter, dataset)
    furthest = max(slices, key=lambda item: item.reach, default=None)
    cut = [number for number in numbers if furthest is not None and number + furthest.reach > furthest.size]
    promised = returned_part(length.__code__, None)
    if furthest is None or not cut or len({item.base for item in slices}) > 1 or promised is None:
        return None
    place, says = (source.place_of_node(function.__code__, node, Known.INFERRED) for function, node in ((getter, furthest.node), (length, promised)))
    if place is None or says is None:
        return None
    return CutShort(place, cut[0], cut[0] + furthest.reach, furthest.size, furthest.base, furthest.terms, Made("length", says))


def _slices(getter: types.FunctionType, dataset: object) -> list[_Slice]:
    scope, names = function_node(getter.__code__), getter.__code__.co_varnames
    if scope is None or getter.__code__.co_argcount != 2 or any(bound in names[:2] for bound, *_ in bindings(scope)):
        return []
    found = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.upper is not None and node.slice.step is None:
            base = _held(node.value, names[0], dataset)
            terms = _terms(node.slice.upper, 1)
            own = [term for term in terms if isinstance(term[1], ast.Name) and term[1].id == names[1]]
            rest = [term for term in terms if term not in own]
            values = [(sign, _number(term, names[0], dataset)) for sign, term in rest]
            if isinstance(base, torch.Tensor) and base.dim() and len(own) == 1 and own[0][0] == 1 and all(value is not None for _, value in values):
                texts = tuple(f"{'-' if sign < 0 else ''}{ast.unparse(term)}" for sign, term in rest)
                found.append(_Slice(node, ast.unparse(node.value), base.shape[0], sum(sign * value for sign, value in values if value is not None), texts))
    return found


def _terms(node: ast.expr, sign: int) -> list[tuple[int, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [*_terms(node.left, sign), *_terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)]
    return [(sign, node)]


def _held(node: ast.expr, owner: str, dataset: object) -> object:
    """The plain attribute of the dataset that an expression names."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
    return plain_attribute(dataset, node.attr) if isinstance(node, ast.Attribute) and mine else UNKNOWN


def _number(node: ast.expr, owner: str, dataset: object) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else _held(node, owner, dataset)
    return value if type(value) is int else None


def _is_programs(function: object) -> typing.TypeGuard[types.FunctionType]:
    return isinstance(function, types.FunctionType) and origin_of(function.__code__) is Origin.USER
