"""Who wrote into a tensor? Three kinds of witness, best first.

The operation log has seen each write with the version before and after. Where it was no longer watching, a write
to a tensor with history has left a node in the graph. A write under `no_grad`, or to a tensor without history, has
left neither: then the lines that ran since, their syntax, and the live objects that share the memory must do, and
what they say is *inferred*.
"""

from __future__ import annotations

import dataclasses
import re
import typing

import torch

from torchsleuth.capture.inplace_modules import called_inplace_modules, writing_module
from torchsleuth.capture.writes_by_syntax import writes_by_syntax
from torchsleuth.capture.writes_logged import Writes, logged_writes
from torchsleuth.evidence import Place, WriteSite
from torchsleuth.model import Known, Span
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def writes_since(crash: Crash, tensor: torch.Tensor, sequence: int, node: typing.Any, version_saved: int, version_now: int) -> Writes:
    """What wrote into this tensor's memory after the node with the number `sequence` was made: the one that saved it, if it was a node."""
    logged = logged_writes(crash, tensor, sequence, version_saved, version_now)
    if logged.complete:
        return logged
    from_graph = _from_graph(crash, tensor, sequence, version_now - version_saved)
    if not from_graph.sites and node is not None:
        from_graph = _from_consumers(crash, node, version_now - version_saved)
    if from_graph.complete:
        return from_graph
    best = logged if len(logged.sites) >= len(from_graph.sites) else from_graph
    found = {site.place.span for site in best.sites}
    reached, unknown = writes_by_syntax(crash, tensor, sequence)
    candidates = [site for site in reached or unknown if site.place.span not in found]
    # The only line that can have written, or lines that together ran just as often as it was written.
    if not best.sites and (len(candidates) == 1 or reached and sum(site.steps for site in candidates) == version_now - version_saved):
        return Writes(tuple(candidates), False)
    return Writes(best.sites, False, tuple(candidates))


def _from_graph(crash: Crash, tensor: torch.Tensor, sequence: int, steps: int) -> Writes:
    """In-place operations on a tensor with history re-base it on a new node: follow those newer than the save."""
    base = tensor._base if tensor._base is not None else tensor
    node = base.grad_fn
    sites: dict[object, _Seen] = {}
    count = 0
    while node is not None and count < steps and sequence < sequence_of(node) < LEAF_SEQUENCE:
        place = crash.timeline.place_of_node(node)
        if place is None:
            return Writes((), False)
        seen = sites.setdefault(place.span, _Seen(place, operation_of(node.name())))
        seen.nodes += 1
        seen.executions.add(crash.timeline.execution_of(sequence_of(node)))
        count += 1
        following = node.next_functions
        node = following[0][0] if following else None
    found = tuple(seen.site() for seen in reversed(_whole_chains(list(sites.values()))))
    return Writes(found, count == steps)


@dataclasses.dataclass(slots=True)
class _Seen:
    """What one expression has left in the graph. `x[i] += 1` writes into `x[i]` and assigns it to its place: two nodes each time."""

    place: Place
    operation: str
    nodes: int = 0
    executions: set[int | None] = dataclasses.field(default_factory=set)

    def site(self) -> WriteSite:
        times = self.nodes if None in self.executions else len(self.executions)
        return WriteSite(self.operation, self.place, times, None, None, True, steps=self.nodes)


def _whole_chains(every: list[_Seen]) -> list[_Seen]:
    """Without the beginnings of `x.mul_(2).add_(1)`, which are in it; `every` is newest first."""
    found: list[_Seen] = []
    for seen in every:
        span = seen.place.span
        whole = next((other for other in found if other.executions == seen.executions and _begins(span, other.place.span)), None)
        if whole is None or None in seen.executions:
            found.append(seen)
        else:
            whole.nodes += seen.nodes
    return found


def _begins(one: Span, other: Span) -> bool:
    return (one.file, one.line, one.column) == (other.file, other.line, other.column) and (one.end_line, one.end_column) < (other.end_line, other.end_column)


def _from_consumers(crash: Crash, node: typing.Any, steps: int) -> Writes:
    """A node that saved its own result: the writes into that result are the nodes built on it, as long as each is seen to
    be a write: by its source, or by the modules that the source calls there."""
    consumers: dict[int, list[typing.Any]] = {}
    for newer in crash.nodes:
        if newer.next_functions and newer.next_functions[0][0] is not None:
            consumers.setdefault(id(newer.next_functions[0][0]), []).append(newer)
    sites: list[WriteSite] = []
    for _ in range(steps):
        found = []
        for newer in consumers.get(id(node), []):
            site = _written_by(crash, newer)
            if site is not None:
                found.append((newer, site))
        if len(found) != 1:
            return Writes(tuple(sites), False)
        node, site = found[0]
        sites.append(site)
    return Writes(tuple(sites), True)


def _written_by(crash: Crash, node: typing.Any) -> WriteSite | None:
    place, operation = crash.timeline.place_of_node(node), operation_of(node.name())
    if place is None:
        return None
    if _WRITING.search(place.source):
        return WriteSite(operation, place, 1, None, None, True)
    modules = called_inplace_modules(crash, place.source, operation)
    if not modules:
        return None
    module, module_class, made = writing_module(crash, modules[0]) or ("", "", None) if len(modules) == 1 else ("", "", None)
    inferred = dataclasses.replace(place, known=Known.INFERRED)
    return WriteSite(operation, inferred, 1, None, None, True, module=module, module_class=module_class, made=made)


_WRITING = re.compile(r"^\S+ (\+|-|\*|/|@|//|%|\*\*)= |\.(?!requires_grad_\()[a-z]\w*_\(")
