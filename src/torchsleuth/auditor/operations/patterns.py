"""What the trace of a step shows by itself: softmax axes and aliased results."""

from __future__ import annotations

import ast
import collections
import typing

import torch

from torchsleuth.auditor.losses.classaxis import axis_before, laid_by_layer
from torchsleuth.auditor.observation import Alias, AxisFact
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.sites import call_at
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace, quietly, tensors_in
from torchsleuth.origin import Origin

# -- softmax axes ----------------------------------------------------------------------------------


class SoftmaxWatch:
    """Softmax over one element, and attention weights that sum to one over the queries instead of the keys."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts: dict[tuple, AxisFact] = {}

    def install(self) -> None:
        for name in ("softmax", "log_softmax"):
            self.trace.watchers.setdefault(name, []).append(quietly(self._softmax))
        for name in ("matmul", "bmm", "__matmul__", "einsum"):
            self.trace.watchers.setdefault(name, []).append(quietly(self._product))

    def _softmax(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        dim = op.argument(1, "dim")
        if not isinstance(result, torch.Tensor) or not isinstance(dim, int) or not result.dim():
            return
        site = self.trace.site(op)
        if site is not None and not site.library and result.shape[dim] == 1 and result.numel() > 1:
            self._add(AxisFact("one-element", op.name, dim, tuple(result.shape), site))

    def _product(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if origin_of_place(op) is not Origin.USER or len(op.ins) != 2:
            return
        operands = tensors_in(args)
        for place, summed in enumerate(summed_axes(op, [t.dim() for t in operands])):
            if summed is not None and (fact := self._weights(op, op.ins[place], operands[place], summed)) is not None:
                self._add(fact)

    def _weights(self, op: Op, seen: Seen, weights: torch.Tensor, keys: int) -> AxisFact | None:
        """Weights of an attention that do not sum to one along `keys`, over which this product runs, but along another axis."""
        chain = list(self.trace.made_through(seen, ARRANGING | {"dropout"}))
        if not chain or chain[-1].name != "softmax":
            return None
        if any(c.name == "dropout" and c.argument(2, "training") is not False and c.argument(1, "p") for c in chain):
            along = _followed(chain, weights.dim())
        else:
            with torch.no_grad():
                values = weights.detach().float()
                along = [axis for axis, n in enumerate(weights.shape) if n > 1 and bool(((values.sum(axis) - 1).abs() < 1e-3).all())]
        if keys in along or not along or weights.shape[keys] < 2 or not self._scores_of_pairs(chain[-1].ins[0]):
            return None
        queries = keys - 1 if keys == weights.dim() - 1 else keys + 1
        # With as many queries as keys there is no telling by size; an attention that lets queries compete (slots) has other sizes.
        wrong = next((axis for axis in along if (axis == queries and weights.shape[axis] == weights.shape[keys]) or 0 < axis != queries), None)
        made, site = self.trace.site(chain[-1]), self.trace.site(op)
        if wrong is None or made is None or site is None:
            return None
        dim = chain[-1].argument(1, "dim")
        return AxisFact("query-axis" if wrong == queries else "other-axis", "softmax", dim if isinstance(dim, int) else wrong, tuple(weights.shape), made, site, wrong, keys)

    def _scores_of_pairs(self, seen: Seen) -> bool:
        """Scores of queries and keys, both of which come from the data. (A layer that gives each position its share of some clusters makes other ones.)"""
        for _ in range(12):
            op = self.trace.maker(seen)
            if op is None:
                return False
            if op.name in ("matmul", "bmm", "__matmul__", "einsum", "baddbmm"):
                sides = op.ins[-2:]
                if len(sides) < 2 or any(one.key in self.trace.parameters for side in sides for one in (side, *self._before(side))):
                    return False
                return not any(laid_by_layer(self.trace, *end) for end in _ends_of(op))
            same = [one for one in op.ins if one.size == seen.size]
            if not same:
                return op.name in ("add", "__add__", "sub") and self._one_for_each(op, seen)
            seen = same[0]
        return False

    def _one_for_each(self, op: Op, seen: Seen) -> bool:
        """Numbers for the queries, [.., N, 1], and for the keys, [.., 1, N], that are added up for each pair."""
        ones = [one.size[-2:] for one in op.ins if len(one.size) == len(seen.size) > 2]
        return len(ones) == 2 and sorted(ones) == sorted([(seen.size[-2], 1), (1, seen.size[-1])]) and not any(one.key in self.trace.parameters for side in op.ins for one in (side, *self._before(side)))

    def _before(self, seen: Seen) -> list[Seen]:
        return [op.ins[0] for op in self.trace.made_through(seen, ARRANGING) if op.ins and op.name in ARRANGING]

    def _add(self, fact: AxisFact) -> None:
        self.facts.setdefault((fact.kind, fact.site.span), fact)


def _followed(chain: list[Op], dims: int) -> list[int]:
    """The axis along which a softmax ran, in a tensor made of its result. (Dropped weights sum to something else.)"""
    found = []
    for axis in range(dims):
        origin: int | None = axis
        for op in chain[:-1]:
            origin = axis_before(op, origin) if origin is not None else None
        dim = chain[-1].argument(1, "dim")
        if origin is not None and isinstance(dim, int) and dim % len(chain[-1].outs[0].size) == origin:
            found.append(axis)
    return found


def _ends_of(op: Op) -> list[tuple[Seen, int]]:
    """The operands of a product with the axes that become the last two of its result."""
    one, two = op.ins[-2:]
    if op.name != "einsum":
        return [(one, len(one.size) - 2), (two, len(two.size) - 1)]
    equation = op.plain[0][0] if op.plain[0] and isinstance(op.plain[0][0], str) else ""
    given, _, kept = equation.replace(" ", "").partition("->")
    labels = given.split(",")
    if len(labels) != 2 or "." in equation:
        return []
    return [(side, names.index(label)) for side, names in zip((one, two), labels, strict=True) for label in kept[-2:] if label in names]


def summed_axes(op: Op, dims: list[int]) -> list[int | None]:
    """For each of the two operands, the one axis that the product runs over."""
    if op.name != "einsum":
        return [dims[0] - 1, dims[1] - 2] if min(dims) >= 2 else [None, None]
    equation = op.plain[0][0] if op.plain[0] and isinstance(op.plain[0][0], str) else ""
    given, arrow, kept = equation.replace(" ", "").partition("->")
    labels = given.split(",")
    if not arrow or len(labels) != 2 or "." in equation or [len(one) for one in labels] != dims:
        return [None, None]
    summed = (set(labels[0]) & set(labels[1])) - set(kept)
    return [one.index(next(iter(summed))) for one in labels] if len(summed) == 1 else [None, None]


# -- aliased results -------------------------------------------------------------------------------


def aliases(trace: Trace, identities: list[tuple[Op | None, int, list[Op]]]) -> list[Alias]:
    """`stack` or `cat` of one and the same tensor, collected several times while it was rewritten in place."""
    found: dict[typing.Any, Alias] = {}
    for op, count, writes in identities:
        site = trace.site(op if op is not None else writes[0])
        if site is None or site.library:
            continue
        found.setdefault(site.span, Alias(count, site, trace.site(writes[0]) if writes else None, writes[0].name if writes else ""))
    return list(found.values())


class AliasWatch:
    """Sees `torch.stack`/`cat` of a list that holds the same tensor more than once, and who wrote into it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.found: list[tuple[Op | None, int, list[Op]]] = []

    def install(self) -> None:
        for name in ("stack", "cat", "hstack", "vstack", "concat"):
            self.trace.watchers.setdefault(name, []).append(quietly(self._gather))

    def _gather(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        items = args[0] if args else kwargs.get("tensors")
        self.look(op, items)

    def look(self, op: Op | None, items: typing.Any) -> None:
        """`op` is None for a list that the model returns."""
        if not isinstance(items, (list, tuple)) or len(items) < 2:
            return
        counts = collections.Counter((t.data_ptr(), t.shape, t.stride()) for t in items if isinstance(t, torch.Tensor) and t.numel())
        if not counts:
            return
        place, count = counts.most_common(1)[0]
        if count < 2 or count < len(items):
            return
        same = [t for t in items if t.data_ptr() == place[0]]
        writers: dict[tuple, list[Op]] = collections.defaultdict(list)
        for o in self._writers_of({key for t in same if (key := self.trace.known_key(t)) is not None}):
            writers[o.place.code, o.place.offset].append(o)
        # Written once for each time it was collected (or not before the first): anything else is a tensor that was made, and then used several times.
        often = [ops for ops in writers.values() if len(ops) > 1 and (len(ops) == count - 1 or len(ops) % count == 0)]
        if often and (op is None or not _built_at_once(op)):
            self.found.append((op, count, often[0]))

    def _writers_of(self, keys: set[int]) -> list[Op]:
        """The calls that wrote into a tensor, in order: each write gives it another number."""
        found = []
        for op in reversed(self.trace.ops):
            if op.writes and any(seen.key in keys for seen in op.outs):
                found.append(op)
                keys |= {seen.key for seen in op.ins[:1]}
        return found[::-1]


def _built_at_once(op: Op) -> bool:
    """`stack([mask] * 3)`: nothing can have been written between the entries of a list that stands in the call itself."""
    call = call_at(op.place)
    items = call.args[0] if call is not None and call.args else None
    return items is not None and not any(isinstance(part, (ast.Call, ast.ListComp, ast.GeneratorExp)) for part in ast.walk(items)) and not _is_reference(items)


def _is_reference(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred))


def collected(output: typing.Any, depth: int = 0) -> typing.Iterator[list]:
    """The lists of tensors in a model's result."""
    if isinstance(output, list) and len(output) > 1 and all(isinstance(t, torch.Tensor) for t in output):
        yield output
    elif depth < 3:
        values = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
        for value in values:
            yield from collected(value, depth + 1)
