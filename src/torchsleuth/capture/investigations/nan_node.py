"""Where anomaly mode stopped at a NaN: which node it was, and through which operation with an infinite slope the gradient came."""

from __future__ import annotations

import re
import typing

from torchsleuth.evidence import NanNode
from torchsleuth.probe import graph
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

# Operations whose derivative grows beyond all bounds somewhere: at 0, and at 1 for the inverse cosine and sine.
EDGES = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "div", "reciprocal", "acos", "asin", "atan2", "acosh", "atanh", "pow"})
_FARTHEST = 12  # nodes between the NaN and the operation that is held responsible


def investigate(crash: Crash) -> NanNode | None:
    call = crash.place_of_failure()
    said = re.search(r"Function '(\w+)' returned nan values", crash.message)
    if call is None or said is None:
        return None
    named = [node for node in crash.nodes if node.name() == said[1]]
    node = _stopped_at(crash, named)
    operation = operation_of(said[1])
    if node is None:
        return NanNode(call, said[1], operation, None, len(named))
    edge = _edge(crash, node)
    return NanNode(
        call,
        said[1],
        operation,
        crash.timeline.place_of_node(node),
        len(named),
        operation_of(edge.name()) if edge is not None else "",
        crash.timeline.place_of_node(edge) if edge is not None else None,
    )


def _stopped_at(crash: Crash, named: list[typing.Any]) -> typing.Any:
    """Of several nodes of one kind the last that ran: what comes after it in backward has not been freed yet."""
    if len(named) == 1:
        return named[0]
    ran = [node for node in named if graph.is_freed(node)]
    if ran:
        return min(ran, key=sequence_of)
    if any(True for node in named for _ in graph.saved_tensors(node)):
        return None  # the graph was kept: nothing tells what has run
    # It saves nothing itself: the newest whose successors have not run.
    waiting = [node for node in named if not any(inner is not None and graph.is_freed(inner) for inner, _ in node.next_functions)]
    return max(waiting, key=sequence_of) if waiting else None


def _edge(crash: Crash, node: typing.Any) -> typing.Any:
    """The nearest operation with such a slope between this node and the loss, itself included."""
    above: dict[int, list[typing.Any]] = {}
    for other in crash.nodes:
        for inner, _ in other.next_functions:
            if inner is not None:
                above.setdefault(id(inner), []).append(other)
    level, seen = [node], {id(node)}
    for _ in range(_FARTHEST):
        found = [item for item in level if _has_edge(item)]
        if found:
            return min(found, key=sequence_of) if len(found) == 1 else None
        following = [item for lower in level for item in above.get(id(lower), []) if id(item) not in seen]
        seen.update(id(item) for item in following)
        level = [item for item in following if sequence_of(item) < LEAF_SEQUENCE]
    return None


def _has_edge(node: typing.Any) -> bool:
    operation = operation_of(node.name())
    if operation == "pow":
        try:
            return float(node._saved_exponent) < 1
        except Exception:
            return False
    return operation in EDGES
