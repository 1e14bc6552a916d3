"""What the trace of a step shows by itself: broadcasting, softmax axes, aliased results, hot lines; and shared layers."""

from __future__ import annotations

import ast
import collections
import typing

import torch
from torch import nn

from torchsleuth.auditor.gradients import built, class_origin, origin_of_place
from torchsleuth.auditor.observation import Alias, AxisFact, Broadcast, HotLine, Shape, SharedLayer, Site, Swap
from torchsleuth.auditor.sites import expression, site_of_node, syntax_of
from torchsleuth.auditor.trace import ARRANGING, EXITS, Op, Seen, Trace
from torchsleuth.origin import Origin

_BINARY = {"add", "sub", "mul", "div", "true_divide", "subtract", "multiply", "__rsub__", "rsub", "pow", "eq", "maximum", "minimum",
           "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "__radd__", "__rmul__", "add_", "sub_", "mul_", "div_", "where",
           "logaddexp", "dist"}  # fmt: skip
_STRETCHING = {"unsqueeze", "unsqueeze_", "view", "reshape", "expand", "expand_as", "unflatten", "keepdim", "meshgrid", "atleast_2d"}
_REDUCING = {"mean", "sum", "nanmean", "norm"}
_LOSSLIKE = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
HOT_REPEATS = 64
HOT_SHARE = 0.5
ITEM_REPEATS = 32


# -- broadcasting ----------------------------------------------------------------------------------


def broadcasts(trace: Trace, loss_key: int | None, batch: int | None) -> list[Broadcast]:
    """Operands that stretch one another, the result being larger than both."""
    on_the_way = trace.ancestors({loss_key}) if loss_key is not None else None
    found: dict[tuple, Broadcast] = {}
    for op in trace.ops:
        if op.name not in _BINARY or len(op.ins) < 2 or origin_of_place(op) is not Origin.USER:
            continue
        left, right = op.ins[-2:] if op.name == "where" else op.ins[:2]
        if left.dtype is torch.bool or right.dtype is torch.bool:
            continue
        if not left.size or not right.size:
            continue
        try:
            result = tuple(torch.broadcast_shapes(left.size, right.size))
        except RuntimeError:
            continue
        if _count(result) <= max(_count(left.size), _count(right.size)):
            continue
        if on_the_way is not None and not any(seen.key in on_the_way for seen in op.outs):
            continue
        if not _same_axis_twice(left.size, right.size):
            continue
        origins = [_origin(trace, side) for side in (left, right)]
        explicit = sum(stretched for _, stretched in origins)
        site = trace.site(op)
        if site is None:
            continue
        span = site.span
        key = (span.file, span.line, span.column, span.end_column)
        found.setdefault(
            key,
            Broadcast(
                op.name, _shape(left), _shape(right), result, site, explicit, op.name in _LOSSLIKE or _reduced(trace, op),
                bool(origins[0][0] & origins[1][0]) and explicit > 0, batch,
            ),
        )  # fmt: skip
    return list(found.values())


def _same_axis_twice(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """(N,) against (N, 1) and its like: the shorter operand's axis is the other's axis of equal size, one place off."""
    if len(left) == len(right):
        return False
    short, long = (left, right) if len(left) < len(right) else (right, left)
    padded = (1,) * (len(long) - len(short)) + short
    for axis, (a, b) in enumerate(zip(padded, long, strict=True)):
        if a > 1 and b == 1:
            # The same count stands elsewhere in the longer operand, where the shorter one has nothing.
            return any(n == a and padded[k] == 1 for k, n in enumerate(long) if k != axis)
    return False


def _origin(trace: Trace, seen: Seen) -> tuple[set[int], bool]:
    """What the operand was rearranged from, and whether an axis of size 1 was put in on purpose."""
    explicit = False
    key = seen.key
    for op in trace.made_through(seen, ARRANGING):
        if op.name in _STRETCHING and op.outs and 1 in op.outs[0].size and len(op.outs[0].size) > len(op.ins[0].size):
            explicit = True
        if op.name == "__getitem__" and _has_none(op.plain[0][1] if len(op.plain[0]) > 1 else None):
            explicit = True
        if op.plain[1].get("keepdim") is True:
            explicit = True
        key = op.outs[0].key if op.name not in ARRANGING else (op.ins[0].key if op.ins else key)
    return {key}, explicit


def _has_none(index: typing.Any) -> bool:
    return index is None or (isinstance(index, tuple) and any(part is None for part in index))


def _reduced(trace: Trace, op: Op) -> bool:
    """The result goes, element by element, into a sum or mean over everything."""
    keys = {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if not any(seen.key in keys for seen in later.ins):
            continue
        if later.name in _REDUCING or not later.outs or later.outs[0].size == ():
            return bool(later.outs) and _count(later.outs[0].size) == 1
        if _count(later.outs[0].size) < _count(op.outs[0].size):
            return False
        keys |= {seen.key for seen in later.outs}
    return False


def _count(size: tuple[int, ...]) -> int:
    total = 1
    for n in size:
        total *= n
    return total


def _shape(seen: Seen) -> Shape:
    return Shape(seen.size, str(seen.dtype).removeprefix("torch."))


# -- softmax axes ----------------------------------------------------------------------------------


class SoftmaxWatch:
    """Softmax over one element, and attention weights that sum to one over the queries instead of the keys."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts: dict[tuple, AxisFact] = {}

    def install(self) -> None:
        for name in ("softmax", "log_softmax"):
            self.trace.watchers.setdefault(name, []).append(self._softmax)
        for name in ("matmul", "bmm", "__matmul__", "einsum"):
            self.trace.watchers.setdefault(name, []).append(self._product)

    def _softmax(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        dim = op.argument(1, "dim")
        if not isinstance(result, torch.Tensor) or not isinstance(dim, int) or not result.dim():
            return
        site = self.trace.site(op)
        if site is not None and not site.library and result.shape[dim] == 1 and result.numel() > 1:
            self._add(AxisFact("one-element", op.name, dim, tuple(result.shape), site))

    def _product(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if op.name == "einsum" or origin_of_place(op) is not Origin.USER or not op.ins:
            return
        weights = args[0] if args else None
        if not isinstance(weights, torch.Tensor) or weights.dim() < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < 2:
            return
        chain = list(self.trace.made_through(op.ins[0], ARRANGING | {"dropout"}))
        if not chain or chain[-1].name != "softmax" or any(c.name == "dropout" and c.argument(2, "training") is not False and c.argument(1, "p") for c in chain):
            return
        with torch.no_grad():
            values = weights.detach().float()
            over_keys = bool(((values.sum(-1) - 1).abs() < 1e-3).all())
            over_queries = bool(((values.sum(-2) - 1).abs() < 1e-3).all())
        made, site = self.trace.site(chain[-1]), self.trace.site(op)
        if not over_keys and over_queries and made is not None and site is not None:
            dim = chain[-1].argument(1, "dim")
            self._add(AxisFact("query-axis", "softmax", dim if isinstance(dim, int) else -2, tuple(weights.shape), made, site))

    def _add(self, fact: AxisFact) -> None:
        self.facts.setdefault((fact.kind, fact.site.span), fact)


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
            self.trace.watchers.setdefault(name, []).append(self._gather)

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
        writers = [
            o for o in self.trace.ops
            if o.writes and any(self.trace.known_key(t) == seen.key for t in same for seen in o.outs)
        ]  # fmt: skip
        # Count writes from the same expression: one write before collecting is a normal tensor used twice.
        sites = collections.Counter((o.place.code, o.place.offset) for o in self.trace.ops if o.writes and o.outs and o.outs[0].size == tuple(same[0].shape))
        if writers and sites and sites.most_common(1)[0][1] >= 2:
            self.found.append((op, count, writers))


def collected(output: typing.Any, depth: int = 0) -> typing.Iterator[list]:
    """The lists of tensors in a model's result."""
    if isinstance(output, list) and len(output) > 1 and all(isinstance(t, torch.Tensor) for t in output):
        yield output
    elif depth < 3:
        values = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
        for value in values:
            yield from collected(value, depth + 1)


# -- views that look like transposes ----------------------------------------------------------------


def swapped_views(trace: Trace, keys: set[int]) -> list[Swap]:
    """`view` or `reshape` to the same sizes in another order: (B, T, C) to (B, C, T). The elements stay where they are."""
    wanted = trace.ancestors(keys)
    found: dict[typing.Any, Swap] = {}
    for op in trace.ops:
        if op.name not in ("view", "reshape") or not op.ins or not op.outs or not op.outs[0].requires_grad or origin_of_place(op) is not Origin.USER:
            continue
        before, after = (tuple(n for n in seen.size if n != 1) for seen in (op.ins[0], op.outs[0]))
        if len(before) < 2 or before == after or sorted(before) != sorted(after) or op.outs[0].key not in wanted:
            continue
        site = trace.site(op)
        if site is not None:
            found.setdefault(site.span, Swap(op.name, op.ins[0].size, op.outs[0].size, site))
    return list(found.values())


# -- hot lines -------------------------------------------------------------------------------------


def hot_lines(trace: Trace, step: slice) -> list[HotLine]:
    """Lines that made most of the step's autograd nodes, by running over and over in one call of their function.

    `step` are the calls from the start of the forward pass to the backward pass.
    """
    nodes: dict[tuple, list[Op]] = collections.defaultdict(list)
    exits: dict[tuple, list[Op]] = collections.defaultdict(list)
    total = 0
    for op in trace.ops[step]:
        if origin_of_place(op) is not Origin.USER:
            continue
        span, _ = expression(op.place.code, op.place.offset)
        if span is None:
            continue
        if op.name in EXITS:
            exits[(op.place.code, span.line, op.place.frame_id)].append(op)
        elif any(seen.requires_grad for seen in op.outs):
            total += 1
            nodes[(op.place.code, span.line, op.place.frame_id)].append(op)
    found = []
    loops: dict[tuple, list[tuple[list[Op], HotLine]]] = collections.defaultdict(list)
    for (code, line, _), ops in nodes.items():
        repeats = max(collections.Counter(op.place.offset for op in ops).values())
        if repeats < HOT_REPEATS or _recurrent(trace, ops):
            continue
        loop = _loop_around(code, line)
        site = trace.site(ops[-1])
        if site is None or loop is None:
            continue
        elements = max(_count(seen.size) for op in ops for seen in op.outs[:1])
        hot = HotLine(len(ops), total, repeats, site, loop, elements, "nodes")
        loops[(loop.span.file, loop.span.line)].append((ops, hot))
    for members in loops.values():
        if sum(len(ops) for ops, _ in members) >= HOT_SHARE * total:
            found.append(max((hot for _, hot in members), key=lambda h: h.nodes))
    if not found:
        for (code, line, _), ops in exits.items():
            loop = _loop_around(code, line)
            site = trace.site(ops[0])
            if len(ops) >= ITEM_REPEATS and loop is not None and site is not None:
                found.append(HotLine(0, total, len(ops), site, loop, 1, "item"))
    return found


def _recurrent(trace: Trace, ops: list[Op]) -> bool:
    """Each round needs the result of the round before, through more than an accumulating sum or a write."""
    accumulating = {"add", "add_", "__setitem__", "__iadd__", "cat", "stack", "copy_", "sub", "select", "__getitem__", "index_put_"}
    mine = {op.index for op in ops}
    reached: dict[int, int] = {}  # key -> the earliest round it was computed from, through more than accumulation
    touched: set[int] = set()
    start, turn = ops[0].place.offset, -1
    for op in trace.ops[ops[0].index :]:
        if op.index in mine and op.place.offset == start:
            turn += 1
        earlier = [reached[seen.key] for seen in op.ins if seen.key in reached]
        if op.index in mine and op.name not in accumulating and any(before < turn for before in earlier):
            return True
        inside = op.index in mine or any(seen.key in touched for seen in op.ins)
        if not inside:
            continue
        touched.update(seen.key for seen in op.outs)
        if earlier or op.name not in accumulating:
            first = min([*earlier, turn])
            for seen in op.outs:
                reached[seen.key] = min(first, reached.get(seen.key, first))
    return False


def _loop_around(code: typing.Any, line: int) -> Site | None:
    """The innermost `for` or `while` statement around this line, or comprehension, in the same function."""
    tree = syntax_of(code.co_filename)
    if tree is None:
        return None
    best: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)) and code.co_firstlineno <= node.lineno <= line <= (node.end_lineno or 0):
            if isinstance(node, (ast.For, ast.While)) and line == node.lineno and line != node.end_lineno and not _one_line(node):
                continue
            if best is None or node.lineno >= best.lineno:  # type: ignore[attr-defined]
                best = node
    if best is None:
        return None
    head: typing.Any = best.iter if isinstance(best, ast.For) else best.test if isinstance(best, ast.While) else best
    return site_of_node(code.co_filename, head, code.co_qualname)


def _one_line(node: ast.For | ast.While) -> bool:
    return node.lineno == node.body[0].lineno


# -- shared layers ---------------------------------------------------------------------------------


def shared_layers(model: nn.Module) -> list[SharedLayer]:
    """The same layer object at several places of one list or sequence of layers."""
    found = []
    for path, container in model.named_modules():
        if not isinstance(container, (nn.ModuleList, nn.Sequential)) or len(container) < 2:
            continue
        places: dict[int, list[int]] = collections.defaultdict(list)
        for position, layer in enumerate(container._modules.values()):
            places[id(layer)].append(position)
        for layer in container._modules.values():
            positions = places.pop(id(layer), [])
            weights = sum(p.numel() for p in layer.parameters()) if layer is not None else 0
            if len(positions) < 2 or not weights:
                continue
            holder = model.get_submodule(path.rpartition(".")[0]) if path else container
            if class_origin(type(holder)) is Origin.LIBRARY:
                continue
            found.append(
                SharedLayer(path, type(container).__name__, tuple(positions), type(layer).__name__, weights, built(holder, path.rpartition(".")[2]))
            )
    return found
