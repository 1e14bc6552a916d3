"""Terms of the product and chain rule, found in forward's own autograd graph: a path left out, the only one there, or taken so many times.

The paths are cut one after the other: if the gradient with one path cut is what backward returned, that path is what
backward forgot.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import typing

import torch

from torchsleuth.checker.bench import Bench, gradients
from torchsleuth.checker.terms import backward_names, constant_between
from torchsleuth.checker.trial import Relation, Size
from torchsleuth.checker.truth import differentiable_run, differing, true_gradient

if typing.TYPE_CHECKING:
    from torchsleuth.checker.relation import Pair

LIMIT = 60  # nodes: a larger graph is not cut


class _Graph(typing.NamedTuple):
    """Forward's own autograd graph at one set of inputs, and the pairs that were found there."""

    leaf: torch.Tensor
    outputs: tuple
    nodes: list
    pairs: list[Pair]

    def gradients(self, node: int | None = None, edge: int | None = None) -> list[torch.Tensor]:
        """The gradient per pair, with the result of a node, or one use of a result, treated as a constant."""
        handle = _cut(self.nodes[node], edge) if node is not None else None
        try:
            out = []
            for pair in self.pairs:
                # None for an output that is marked as without a gradient.
                pairs = [(o, g.clone()) for o, g in zip(self.outputs, pair.evaluation.grads, strict=True) if g is not None and o.grad_fn is not None]
                roots, grads = zip(*pairs, strict=True)
                (found,) = gradients(roots, [self.leaf], grads, retain_graph=True)
                out.append(torch.zeros_like(self.leaf) if found is None else found)
            return out
        finally:
            if handle is not None:
                handle.remove()


def lost_output(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """The output whose gradient backward makes nothing of: what it returns is right if that output is not used."""
    live = [o for o, g in enumerate(pairs[0].evaluation.grads) if g is not None]
    for o in live if len(live) > 1 else ():
        for pair in pairs:
            rest = tuple(None if j == o else g for j, g in enumerate(pair.evaluation.grads))
            found, _ = true_gradient(bench, pair.evaluation._replace(grads=rest), k)
            if found is None or bool(differing(pair.returned, found.gradient).any()):
                break
        else:
            names = backward_names(bench)
            return Relation("lost-output", other=o, tensor=names[o] if o < len(names) else "")
    return None


@torch.enable_grad()
def missing_path(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """The operation of forward whose share of the gradient is missing, or taken so many times."""
    graphs: list[_Graph] = []
    for arguments in {id(p.evaluation.arguments): p.evaluation.arguments for p in pairs}.values():
        graph = _graph(bench, [p for p in pairs if p.evaluation.arguments is arguments], k)
        if graph is None and not graphs:
            return None
        if graph is not None and (not graphs or [type(n) for n in graph.nodes] == [type(n) for n in graphs[0].nodes]):
            graphs.append(graph)
    for graph in graphs:
        _constants_cut(graph)
    everything = [p for graph in graphs for p in graph.pairs]
    returned, true = [p.returned for p in everything], [p.true for p in everything]
    for node, edge in _cuts(graphs[0].nodes):
        try:
            cut = [found for graph in graphs for found in graph.gradients(node, edge)]
        except RuntimeError:
            continue
        share = [t - c for t, c in zip(true, cut, strict=True)]
        # A cut that changes nothing is no term, and one that leaves nothing is the whole gradient.
        if not any(bool((c != 0).any()) for c in cut) or not any(bool(differing(c, t).any()) for c, t in zip(cut, true, strict=True)):
            continue
        if all(not bool(differing(r, c).any()) for r, c in zip(returned, cut, strict=True)):
            return _path_relation(bench, graphs[0].nodes[node], edge, "missing")
        only = constant_between(returned, share)
        if only is not None and (len(graphs) > 1 or abs(only) == 1):
            return _path_relation(bench, graphs[0].nodes[node], edge, "only", only)
        times = constant_between([r - c for r, c in zip(returned, cut, strict=True)], share)
        if times is not None and len(graphs) > 1:
            relation = _path_relation(bench, graphs[0].nodes[node], edge, "scaled", times)
            return dataclasses.replace(relation, sizes=_argument(everything[0], abs(times)))
    return None


def _argument(pair: Pair, factor: float) -> tuple[Size, ...]:
    """The number given to forward, or the size of an input, that a factor is, or one over it."""
    arguments = pair.evaluation.arguments
    for name, value in zip(arguments.names, arguments.values, strict=True):
        if isinstance(value, float) and abs(value) not in (0.0, 1.0, 2.0, 0.5):
            for power in (1.0, -1.0):
                if abs(factor - abs(value) ** power) < 1e-6 * factor:
                    return (Size("argument", name, abs(value), power),)
        for dim, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if n > 2 and min(abs(factor - n) / n, abs(factor * n - 1)) < 1e-6:
                return (Size("dimension", name, float(n), 1.0 if factor > 1 else -1.0, (dim,)),)
    return ()


def _graph(bench: Bench, pairs: list[Pair], k: int) -> _Graph | None:
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            leaves, run = differentiable_run(bench, pairs[0].evaluation.arguments)
    except Exception:
        return None
    grads = pairs[0].evaluation.grads
    roots = [out for out, g in zip(run.outputs, grads, strict=True) if g is not None and out.grad_fn is not None]
    nodes = _nodes(roots)
    return _Graph(leaves[k], run.outputs, nodes, pairs) if roots and 1 < len(nodes) <= LIMIT else None


def _constants_cut(graph: _Graph) -> None:
    """Results that the outputs do not depend on, such as a maximum subtracted before exp, are cut for good: their paths cancel."""
    sizes: dict[int, float] = {}

    def seen(position: int) -> typing.Callable:
        def hook(grads):
            sizes[position] = max([sizes.get(position, 0.0), *(float(g.abs().max()) for g in grads if g is not None and g.numel())])

        return hook

    inner = [(p, node) for p, node in enumerate(graph.nodes) if p and type(node).__name__ != "AccumulateGrad"]
    handles = [node.register_prehook(seen(position)) for position, node in inner]
    try:
        graph.gradients()
    except RuntimeError:
        return
    finally:
        for handle in handles:
            handle.remove()
    for position, node in inner:
        if position in sizes and sizes[position] <= 1e-11 * max(sizes.values()):
            _cut(node, None)


def _nodes(roots: list[torch.Tensor]) -> list:
    seen, pending = [], [out.grad_fn for out in roots]
    while pending and len(seen) <= LIMIT:
        node = pending.pop(0)
        if node is None or any(node is other for other in seen):
            continue
        seen.append(node)
        pending += [child for child, _ in node.next_functions]
    return seen


def _cuts(nodes: list) -> typing.Iterator[tuple[int, int | None]]:
    """First whole results treated as constants, then single uses of a result: positions in `nodes`, and edges."""
    for position, node in enumerate(nodes):
        if position and type(node).__name__ != "AccumulateGrad":
            yield position, None
    for position, node in enumerate(nodes):
        live = [e for e, (child, _) in enumerate(node.next_functions) if child is not None]
        if len(live) > 1 or any(type(node.next_functions[e][0]).__name__ == "AccumulateGrad" for e in live):
            for edge in live:
                yield position, edge


def _cut(node: typing.Any, edge: int | None):
    def hook(inputs, outputs):
        return tuple(
            torch.zeros_like(g) if g is not None and (edge is None or position == edge) else g
            for position, g in enumerate(inputs)
        )

    return node.register_hook(hook)


def _path_relation(bench: Bench, node: typing.Any, edge: int | None, detail: str, factor: float = 0.0) -> Relation:
    file, line = _origin(bench, node)
    text = linecache.getline(file, line).strip() if file else ""
    operation = re.sub(r"Backward\d*$", "", type(node).__name__)
    return Relation("missing-term", tensor=text or operation, line=line, detail=detail, other=-1 if edge is None else edge,
                    instead=operation, factor=factor)  # fmt: skip


def _origin(bench: Bench, node: typing.Any) -> tuple[str, int]:
    """The line of forward that made a node, from what anomaly mode recorded."""
    file = getattr(getattr(bench.subject.forward_code, "__code__", None), "co_filename", "")
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = re.match(r'\s*File "(.*?)", line (\d+), in (\S+)', entry)
        if found and found[1] == file:
            return file, int(found[2])
    return "", 0
