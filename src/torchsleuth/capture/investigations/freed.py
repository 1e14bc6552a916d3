"""A second backward through a freed graph: what consumed it first, and what carried the old part into the new one."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.carried import carried_over
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.needless import needless_use
from torchsleuth.capture.syntax import node_at
from torchsleuth.evidence import FreedGraph, Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe import graph
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def investigate(crash: Crash) -> FreedGraph | None:
    second = crash.place_of_failure()
    if second is None or not crash.roots:
        return None
    root = crash.roots[0]
    before = _earlier_backwards(crash)
    old_nodes = [node for node in crash.nodes if sequence_of(node) < LEAF_SEQUENCE and graph.is_freed(node)]
    first_place, boundary, same_root, consumed_root = None, None, False, 0
    if before and old_nodes:
        oldest = min(sequence_of(node) for node in old_nodes)
        # The graph was consumed by the first backward after its oldest freed node was made.
        freeing = [item for item in before if not item[3]] or before
        seen = next((item for item in freeing if item[1] > oldest), None)
        if seen is not None:  # else the one that did was not seen
            first_place, boundary, consumed_root, _ = seen
            same_root = any(item[2] == id(root) for item in before) and boundary > sequence_of(root.grad_fn)
    carried, edges = carried_over(crash, boundary, graph.is_freed, callers=True) if boundary is not None else ((), [])
    consumed = next((op for op in crash.timeline.operations if op.name in ("backward", "grad") and not op.raised and op.sequence == boundary), None)
    needless = needless_use(crash, edges[0], consumed.index) if len(edges) == 1 and consumed is not None else None
    if needless is not None and carried[0].used is not None and needless[0].span == carried[0].used.span:
        needless = None  # one and the same expression, run twice
    shared = None
    if not carried and not same_root:
        shared = _shared(crash, before, root)
    again = same_root and first_place is not None and first_place.span == second.span  # one call, run twice: what it is called on was made once
    failing = root.grad_fn if again and consumed_root in (0, id(root)) else shared
    return FreedGraph(
        second,
        first_place,
        len(before) if _all_remembered(crash) else 0,
        carried,
        same_root,
        crash.names.fact(root),
        crash.timeline.place_of_node(failing) if failing is not None else None,
        operation_of(failing.name()) if failing is not None else "",
        *(needless or (None, ())),
        bool(carried) and boundary is not None and not _leads_elsewhere(root.grad_fn, boundary),
        same_root and consumed_root not in (0, id(root)),
    )


def _leads_elsewhere(start: typing.Any, boundary: int) -> bool:
    """Whether what was computed since this moment reaches a leaf by itself."""
    pending, seen = [start], {start}
    while pending:
        for node, _ in pending.pop().next_functions:
            if node is None or node in seen:
                continue
            if hasattr(node, "variable"):
                return True
            if sequence_of(node) >= boundary:
                seen.add(node)
                pending.append(node)
    return False


def _earlier_backwards(crash: Crash) -> list[tuple[Place, int, int, bool]]:
    """(place, sequence number at that time, id of the root, whether it says that it keeps the graph) of backward calls
    before the failing one, oldest first."""
    logged = [
        (
            place,
            operation.sequence,
            operation.operands[0].ident if operation.operands else 0,
            _keeps_graph(node_at(operation.code, operation.lasti)),
        )
        for operation in crash.timeline.operations
        if operation.name in ("backward", "grad") and not operation.raised
        if (place := crash.timeline.place_of_operation(operation)) is not None
    ]
    log = crash.recording.log if crash.recording is not None else None
    if logged and log is not None and not log.finished:
        return logged
    until = crash.timeline.operations[-1].sequence_after if logged else 0  # the log has ended: from there on the lines tell
    found = []
    waiting: list[tuple[types.CodeType, Place, int, bool]] = []  # calls whose line is still running
    calls: dict[tuple[int, int], ast.Call | None] = {}
    for event in crash.timeline.events():
        if event.kind is not Kind.LINE or origin_of(event.code) is not Origin.USER:
            continue
        # The number at the start of `model(x).sum().backward()` is that of before the forward pass; at the next line of
        # the same code it is that of the backward, which makes no nodes of its own.
        for code, place, ident, keeps in waiting:
            if code is event.code:
                found.append((place, event.sequence, ident, keeps))
        waiting = [item for item in waiting if item[0] is not event.code]
        key = (id(event.code), event.where)
        if key not in calls:
            statements = source.statements_at(event.code.co_filename, event.where)
            calls[key] = next((call for statement in statements if (call := _backward_call(statement)) is not None), None)
        call = calls[key]
        place = source.place_of_node(event.code, call, Known.INFERRED) if call is not None else None
        if place is not None:
            waiting.append((event.code, place, _receiver(crash, event.code, call), _keeps_graph(call)))
    # The failing call is still waiting, or a handler around it (`except`, the end of a `with`) has run a line since: then it is the last one there.
    failing = crash.place_of_failure()
    if failing is not None and not any(place.span == failing.span for _, place, _, _ in waiting):
        again = [at for at, (place, *_) in enumerate(found) if place.span == failing.span]
        if again:
            del found[again[-1]]
    # One with the number at which the log ended was seen by it, or ran just after.
    last = logged[-1][1] if logged else -1
    return [*logged, *(item for item in found if item[1] > until or item[1] == until > last)]


def _all_remembered(crash: Crash) -> bool:
    """Nothing has been forgotten that a count would have to include."""
    if crash.recording is None:
        return True
    log = crash.recording.log
    if log is not None and len(log.operations) == log.operations.maxlen:
        return False
    return log is not None and not log.finished or crash.recording.ring.oldest == 0


def _keeps_graph(call: ast.AST | None) -> bool:
    """`retain_graph=True`, which `create_graph=True` implies."""
    if not isinstance(call, ast.Call):
        return False
    said = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    return said.get("retain_graph", said.get("create_graph")) is True


def _receiver(crash: Crash, code: types.CodeType, call: ast.Call) -> int:
    """The id of what `x.backward()` stands for now, 0 where `x` cannot be read."""
    if not isinstance(call.func, ast.Attribute) or _counted(code, call):
        return 0
    values = [value for value in values_of(crash, code, call.func.value) if isinstance(value, torch.Tensor)]
    return id(values[0]) if len(values) == 1 else 0


def _counted(code: types.CodeType, call: ast.Call) -> bool:
    """`for loss in losses: loss.backward()`: the name stands for another tensor in every round."""
    names = {node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)}
    tree = source.tree_of(code.co_filename)
    return any(
        isinstance(loop, (ast.For, ast.AsyncFor)) and loop.lineno <= call.lineno <= (loop.end_lineno or loop.lineno)
        and names & {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        for loop in (ast.walk(tree) if tree is not None else ())
    )  # fmt: skip


def _backward_call(statement: ast.stmt) -> ast.Call | None:
    if hasattr(statement, "body"):
        return None
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and called_name(node) == "backward":
            return node
    return None


def _shared(crash: Crash, before: list[tuple[Place, int, int, bool]], root: torch.Tensor) -> typing.Any:
    """The newest node that this graph shares with one that an earlier backward went through."""
    earlier = {ident for _, _, ident, _ in before if ident}
    for named in crash.names.all():
        if id(named.tensor) in earlier and named.tensor is not root and named.tensor.grad_fn is not None:
            others = {id(node): node for node in graph.walk([named.tensor.grad_fn])}
            common = [node for node in crash.nodes if id(node) in others and sequence_of(node) < LEAF_SEQUENCE]
            if common:
                return max(common, key=sequence_of)
    return None
