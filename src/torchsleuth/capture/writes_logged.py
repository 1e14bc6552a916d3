"""Writes that the operation log has seen: each with the version before and after it, and the region that it touched."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.inplace_modules import writing_module
from torchsleuth.evidence import WriteSite
from torchsleuth.frozen import frozen
from torchsleuth.probe.tensors import may_overlap, storage_of
from torchsleuth.record.oplog import Mark, Operation, Write

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_VIEWS_WITH_OWN_COUNTER = ("data",)
_Groups = dict[tuple[int, int, int], list[tuple[Operation, Write, Mark]]]


@frozen
class Writes:
    sites: tuple[WriteSite, ...]
    complete: bool  # they account for every version step
    candidates: tuple[WriteSite, ...] = ()


def logged_writes(crash: Crash, tensor: torch.Tensor, sequence: int, saved: int, now: int) -> Writes:
    storage = storage_of(tensor)
    if not storage:
        return Writes((), False)
    by_counter: dict[int, list[tuple[Operation, Write, Mark]]] = {}
    counter_of: dict[int, int] = {}
    counters = 0
    for operation in crash.timeline.operations:
        inside = [mark for mark in operation.operands if mark.storage == storage]
        if operation.sequence > sequence:
            seen: set[int] = set()  # `x[i] = x[i] * 2` in place: the same write, seen through the tensor and through its view
            for write in operation.writes:
                mark = operation.operands[write.operand]
                counter = counter_of.get(mark.ident, 0)
                if mark.storage == storage and write.before >= saved and write.after <= now and counter not in seen:
                    seen.add(counter)
                    by_counter.setdefault(counter, []).append((operation, write, mark))
        for mark in operation.results:
            if mark.storage == storage:
                if operation.name in _VIEWS_WITH_OWN_COUNTER:
                    counters += 1
                    counter_of[mark.ident] = counters
                else:
                    counter_of[mark.ident] = counter_of.get(inside[0].ident, 0) if inside else 0
    best: Writes = Writes((), False)
    own = counter_of.get(id(tensor), 0)
    for _, found in sorted(by_counter.items(), key=lambda item: item[0] != own):
        steps = {step for _, write, _ in found for step in range(write.before, write.after)}
        complete = steps == set(range(saved, now))
        if complete or len(found) > sum(site.times for site in best.sites):
            best = Writes(grouped(crash, tensor, found), complete)
        if complete:
            break
    return best


def grouped(crash: Crash, tensor: torch.Tensor, found: list[tuple[Operation, Write, Mark]]) -> tuple[WriteSite, ...]:
    groups: _Groups = {}
    for operation, write, mark in found:
        groups.setdefault((id(operation.code), operation.lasti, operation.module), []).append((operation, write, mark))
    assigned = _assigned_back(groups)
    before = _chained(groups)
    sites = []
    for key, group in groups.items():
        operation = group[0][0]
        all_of_it = [*group, *before.get(key, ()), *assigned.get(key, ())]
        place = crash.timeline.place_of_operation(operation)
        if place is None:
            continue
        overlaps = [_overlap(tensor, each, mark) for each, _, mark in group[:64]]
        module, module_class, made = writing_module(crash, operation.module) or ("", "", None)
        sites.append(
            WriteSite(
                operation.name,
                place,
                len(group),
                min(write.before for _, write, _ in all_of_it),
                max(write.after for _, write, _ in all_of_it),
                operation.grad_enabled,
                overlaps=None if None in overlaps else any(overlaps),
                whole=all((mark.shape, mark.strides, mark.offset) == (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) for _, _, mark in group[:64]),
                fits_exactly=all(_fits_exactly(each, write, mark) for each, write, mark in group[:64]),
                module=module,
                module_class=module_class,
                made=made,
                assigned=key in assigned,
                steps=sum(write.after - write.before for _, write, _ in all_of_it),
            )
        )
    return tuple(sites)


def _assigned_back(groups: _Groups) -> _Groups:
    """`x[i] *= 2` writes into the view `x[i]` and then assigns it to itself: one statement, so that the assignments are taken out
    of the groups. For the operators of these statements, their assignments."""
    taken: _Groups = {}
    for key, group in list(groups.items()):
        operation = group[0][0]
        where = source.instruction_range(operation.code, operation.lasti) if operation.name == "__setitem__" else None
        statement = source.statement_at(operation.code.co_filename, where[0]) if where else None
        if not isinstance(statement, ast.AugAssign):
            continue
        before = {op.index - 1 for op, *_ in group}  # what the operator did, each time
        operators = [other for other, ops in groups.items() if other != key and {op.index for op, *_ in ops} == before]
        if len(operators) == 1:
            taken[operators[0]] = groups.pop(key)
    return taken


def _chained(groups: _Groups) -> _Groups:
    """`x[i].mul_(0.9).add_(y)` writes twice into the view that `x[i]` has made: one expression, so that its beginnings are taken out
    of the groups. For each such expression what its beginnings did."""
    taken: _Groups = {}
    for key, whole in sorted(groups.items(), key=lambda item: item[1][0][0].index):
        for other, part in list(groups.items()):
            if other != key and other in groups and _begins(part, whole):
                taken.setdefault(key, []).extend([*taken.pop(other, []), *groups.pop(other)])
    return taken


def _begins(part: list[tuple[Operation, Write, Mark]], whole: list[tuple[Operation, Write, Mark]]) -> bool:
    inner, outer = (source.instruction_range(group[0][0].code, group[0][0].lasti) for group in (part, whole))
    if part[0][0].code is not whole[0][0].code or inner is None or outer is None or len(part) != len(whole):
        return False
    nested = outer[:2] == inner[:2] and inner[2:] < outer[2:]
    return nested and all(first[2].ident == then[2].ident and first[0].index < then[0].index for first, then in zip(part, whole))


def _fits_exactly(operation: Operation, write: Write, mark: Mark) -> bool:
    """An assignment `x[i] = value` that neither broadcasts nor casts nor copies between devices."""
    if operation.name != "__setitem__":
        return False
    region = _assigned_region(operation, mark)
    others = [other for position, other in enumerate(operation.operands) if position != write.operand]
    if region is None or len(others) != 1:
        return False
    return (others[0].shape, others[0].dtype, others[0].device) == (region[0], mark.dtype, mark.device)


def _overlap(tensor: torch.Tensor, operation: Operation, mark: Mark) -> bool | None:
    """Whether the region this call wrote touches the saved tensor's; None where that is not known."""
    shape, strides, offset = mark.shape, mark.strides, mark.offset
    if operation.name == "__setitem__":
        region = _assigned_region(operation, mark)
        if region is None:
            outside = may_overlap((tuple(tensor.shape), tensor.stride(), tensor.storage_offset()), (shape, strides, offset))
            return False if outside is False else None
        shape, strides, offset = region
    return may_overlap((tuple(tensor.shape), tensor.stride(), tensor.storage_offset()), (shape, strides, offset))


def _assigned_region(operation: Operation, mark: Mark) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    if operation.index_used is None:
        return None
    try:
        shadow = torch.empty_strided(mark.shape, mark.strides, device="meta")[operation.index_used]
        return tuple(shadow.shape), shadow.stride(), mark.offset + shadow.storage_offset()
    except Exception:
        return None
