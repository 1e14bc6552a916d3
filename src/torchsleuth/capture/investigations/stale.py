"""Saved tensors that were overwritten: every node that can no longer be differentiated, and who wrote."""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.capture.syntax import saved_name
from torchsleuth.capture.writes import Writes, writes_since
from torchsleuth.evidence import StaleSave, TensorFact
from torchsleuth.probe.graph import Saved, operation_of, saved_tensors, sequence_of
from torchsleuth.probe.tensors import storage_of, tensor_fact

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_SAVES = 24


def investigate(crash: Crash) -> tuple[StaleSave, ...]:
    stale = [
        (node, saved)
        for node in crash.nodes
        for saved in saved_tensors(node)
        if saved.state == "stale"
    ]  # fmt: skip
    # The engine runs the newest ready node first, so among equal messages the newest is the one that failed.
    stale.sort(key=lambda pair: -sequence_of(pair[0]))
    about = [pair for pair in stale if _same_complaint(pair[1].message, crash.message)]
    failing = about[0] if about else None
    if failing is not None:
        stale.remove(failing)
        stale.insert(0, failing)
    cache: dict[tuple, Writes] = {}
    return tuple(_save(crash, node, saved, (node, saved) == failing, cache) for node, saved in stale[:_MOST_SAVES])


def _same_complaint(one: str, other: str) -> bool:
    return one.split(" Hint:")[0] == other.split(" Hint:")[0]


def _save(crash: Crash, node: typing.Any, saved: Saved, failing: bool, cache: dict[tuple, Writes]) -> StaleSave:
    tensor = saved.tensor
    number = sequence_of(node)
    if tensor is None:
        writes = Writes((), False)
        fact = tensor_fact(torch.empty(0))
    else:
        key = (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), number, saved.version_saved)
        if key not in cache:
            cache[key] = writes_since(crash, tensor, node, saved.version_saved, saved.version_now)
        writes = cache[key]
        fact = _named(crash, node, saved, crash.names.fact(tensor))
    return StaleSave(
        node.name(),
        operation_of(node.name()),
        saved.name,
        crash.timeline.place_of_node(node),
        fact,
        saved.version_saved,
        saved.version_now,
        failing,
        writes.sites,
        writes.complete,
        writes.candidates,
        storage_of(tensor) if tensor is not None else 0,
    )


def _named(crash: Crash, node: typing.Any, saved: Saved, fact: TensorFact) -> TensorFact:
    """Where no variable in sight holds the tensor any more, the expression that saved it still says its name."""
    if fact.name:
        return fact
    operation = crash.timeline.operation_of_sequence(sequence_of(node))
    name = saved_name(operation.code, operation.lasti, node.name(), saved.name) if operation is not None else ""
    return dataclasses.replace(fact, name=name, kind="variable") if name else fact
