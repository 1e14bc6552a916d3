"""The GPU's memory ran out: what holds it, by the source line that made it. Reads live objects only, allocates nothing there."""

from __future__ import annotations

import ast
import gc
import re
import typing
from collections import Counter

import torch

from torchsleuth import source
from torchsleuth.evidence_device import FullMemory, Holder
from torchsleuth.evidence_parts import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.graph import kept_tensors, sequence_of, walk
from torchsleuth.probe.tensors import storage_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST_LINES = 5
_FEWEST_STEPS = 3  # of whose graphs it is said that they are kept
_ENTRY = re.compile(r"\[\d+\]")
_LOSSES = re.compile(r"(NllLoss|MseLoss|BinaryCrossEntropy|L1Loss|SmoothL1Loss|HuberLoss|KlDiv|CtcLoss)\w*Backward")


def investigate(crash: Crash) -> FullMemory | None:
    # By type: `isinstance` also asks an object for its `__class__`, and torch's deprecated ones answer with a warning.
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    tensors = [tensor for tensor in tensors if _counts(tensor)]
    seen: set[int] = set()
    held = _held(crash, seen)
    nodes = sorted(walk(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None), key=sequence_of)
    saved, largest = _saved(crash, nodes, seen)
    others = _variables(crash, seen)
    gathered = _gathered(crash)
    steps, where, keeper, built = gathered or _steps(crash, nodes)
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
        gathered is not None,
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


def _gathered(crash: Crash) -> tuple[int, Place, str, Place | None] | None:
    """A list that holds results of one expression, each with a graph of its own: those of other steps, as a rule."""
    by_list: dict[tuple[str, str], list[typing.Any]] = {}
    for named in crash.names.all():
        if named.kind == "variable" and named.tensor.grad_fn is not None:
            for entry in _ENTRY.finditer(named.name):  # `results[7]['score']` is the score of an entry of `results`
                by_list.setdefault((named.name[: entry.start()], named.name[entry.end() :]), []).append(named.tensor.grad_fn)
    for (name, _), made in sorted(by_list.items(), key=lambda item: -len(item[1])):
        made = [node for node in made if any(True for one in walk([node]) for _ in kept_tensors(one))]  # a backward pass frees what it has used
        if len(made) < _FEWEST_STEPS or not _apart(made):
            continue
        places = [crash.timeline.place_of_node(node) for node in made]
        if places[0] is not None and all(place is not None and place.span == places[0].span for place in places):
            return len(made), places[0], name, _puts_in(crash, name)
    return None


def _apart(made: list[typing.Any]) -> bool:
    """No result was computed from another one: then they would be one graph, of one step."""
    wanted = {id(node) for node in made}
    return all(sum(id(node) in wanted for node in walk([one])) == 1 for one in made[:_FEWEST_STEPS])


def _puts_in(crash: Crash, name: str) -> Place | None:
    """The one expression of the program's that puts something into the list."""
    found: dict[tuple, Place] = {}
    for frame, _ in crash.entries:
        tree = source.tree_of(frame.f_code.co_filename) if origin_of(frame.f_code) is Origin.USER else None
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "appendleft", "extend", "add"):
                place = source.place_of_node(frame.f_code, node, Known.INFERRED) if _same_path(ast.unparse(node.func.value), name) else None
                if place is not None:
                    found[place.span.file, place.span.line, place.span.column] = place
    return next(iter(found.values())) if len(found) == 1 else None


def _same_path(written: str, name: str) -> bool:
    """`self.history` in a method is `trainer.history` to who called it."""
    return written == name or ("." in written and "." in name and written.rsplit(".", 1)[1] == name.rsplit(".", 1)[1])


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
    if len(same) < _FEWEST_STEPS:
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
