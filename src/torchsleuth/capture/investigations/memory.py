"""The GPU's memory ran out: what holds it, by the source line that made it. Reads live objects only, allocates nothing there."""

from __future__ import annotations

import gc
import re
import typing
from collections import Counter

import torch

from torchsleuth.evidence_device import FullMemory, Holder
from torchsleuth.evidence_parts import Place
from torchsleuth.probe.graph import kept_tensors, sequence_of, walk
from torchsleuth.probe.tensors import storage_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST_LINES = 5
_LOSSES = re.compile(r"(NllLoss|MseLoss|BinaryCrossEntropy|L1Loss|SmoothL1Loss|HuberLoss|KlDiv|CtcLoss)\w*Backward")


def investigate(crash: Crash) -> FullMemory | None:
    tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
    tensors = [tensor for tensor in tensors if _counts(tensor)]
    seen: set[int] = set()
    held = _held(crash, seen)
    nodes = sorted(walk(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None), key=sequence_of)
    saved, largest = _saved(crash, nodes, seen)
    others = _variables(crash, seen)
    steps, where, keeper, built = _steps(crash, nodes)
    return FullMemory(
        _said(crash.message, r"Tried to allocate ([\d.]+) (\w+)"),
        _said(crash.message, r"total capacity of ([\d.]+) (\w+)"),
        _said(crash.message, r"Of the allocated memory ([\d.]+) (\w+)") or sum(holder.size for holder in (*held, *saved, *others)),
        _said(crash.message, r"and ([\d.]+) (\w+) is reserved by PyTorch but unallocated"),
        crash.place_of_failure(),
        tuple(saved[:_MOST_LINES]),
        tuple(sorted((*held, *others), key=lambda holder: -holder.size)[:6]),
        steps,
        where,
        keeper,
        tuple(largest[:3]),
        built,
    )


def _counts(tensor: torch.Tensor) -> bool:
    """On the device that ran out; where there is none (tests), every tensor."""
    try:
        return tensor.is_cuda or not torch.cuda.is_initialized()
    except Exception:
        return False


def _said(message: str, pattern: str) -> int:
    found = re.search(pattern, message)
    return int(float(found[1]) * _UNITS.get(found[2], 1)) if found else 0


def _take(tensor: object, seen: set[int]) -> int:
    """The bytes of its memory, once."""
    if not isinstance(tensor, torch.Tensor) or not _counts(tensor):
        return 0
    storage = storage_of(tensor)
    if not storage or storage in seen:
        return 0
    seen.add(storage)
    return tensor.untyped_storage().nbytes()


def _held(crash: Crash, seen: set[int]) -> list[Holder]:
    parameters, gradients, state = [], [], []
    for _, module in crash.names.modules:
        for tensor in (*module.parameters(), *module.buffers()):
            parameters.append(_take(tensor, seen))
            gradients.append(_take(tensor.grad if tensor.is_leaf else None, seen))
    for _, optimizer in crash.names.optimizers:
        for values in list(optimizer.state.values()):
            state += [_take(value, seen) for value in (values.values() if isinstance(values, dict) else ())]
    groups = (("parameters and buffers", parameters), ("gradients", gradients), ("the optimizer's state", state))
    return [Holder(name, sum(sizes), sum(size > 0 for size in sizes)) for name, sizes in groups if sum(sizes)]


def _saved(crash: Crash, nodes: typing.Sequence[typing.Any], seen: set[int]) -> tuple[list[Holder], list[Holder]]:
    """What the graph keeps for backward, by the line of the operation that keeps it."""
    by_line: dict[tuple, list] = {}
    single: list[Holder] = []
    for node in nodes:
        sizes = [(tensor, _take(tensor, seen)) for tensor in kept_tensors(node)]
        if not any(size for _, size in sizes):
            continue
        place = crash.timeline.place_of_node(node)
        shown = _shown(place)
        key = (shown.span.file, shown.span.line) if shown is not None else ()
        line = by_line.setdefault(key, [shown, 0, 0])
        for tensor, size in sizes:
            line[1] += size
            line[2] += size > 0
            if size:
                single.append(Holder(f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}", size, 1, shown))
    lines = [Holder("saved for backward", size, count, place) for place, size, count in by_line.values()]
    return sorted(lines, key=lambda holder: -holder.size), sorted(single, key=lambda holder: -holder.size)


def _shown(place: Place | None) -> Place | None:
    """A library's line says little: the user's call into it says what to change."""
    return place.via if place is not None and place.in_library and place.via is not None else place


def _variables(crash: Crash, seen: set[int]) -> list[Holder]:
    found = [Holder(f"`{named.name}` {list(named.tensor.shape)}", _take(named.tensor, seen), 1) for named in crash.names.all()]
    return [holder for holder in found if holder.size]


def _steps(crash: Crash, nodes: typing.Sequence[typing.Any]) -> tuple[int, Place | None, str, Place | None]:
    """Graphs of several steps alive at once: as many nodes of one and the same loss, and the variable that reaches them all."""
    losses: dict[tuple, list] = {}
    for node in nodes:
        if _LOSSES.match(node.name()):
            place = crash.timeline.place_of_node(node)
            if place is not None:
                losses.setdefault((place.span.file, place.span.line, place.span.column), [place]).append(node)
    if not losses:
        return 0, None, "", None
    place, *same = max(losses.values(), key=len)
    if len(same) < 3:
        return 0, None, "", None
    wanted = {id(node) for node in same}
    reach: Counter[str] = Counter()
    newest: dict[str, typing.Any] = {}
    for named in crash.names.all():
        if named.tensor.grad_fn is not None:
            name = re.sub(r"\[\d+\]$", "", named.name)
            reach[name] += sum(id(node) in wanted for node in walk([named.tensor.grad_fn]))
            newest[name] = named.tensor.grad_fn
    keeper, count = reach.most_common(1)[0] if reach else ("", 0)
    if count < len(same) - 1:
        return len(same), place, "", None
    return len(same), place, keeper, crash.timeline.place_of_node(newest[keeper])
