"""Python loops over rows or elements that make most of a step's autograd nodes, or read numbers out of tensors again and again."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import itertools
import math
import typing

from torchsleuth.auditor.gradients.gradients import origin_of_place
from torchsleuth.auditor.observation import HotLine
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import expression, site_of_node, syntax_of
from torchsleuth.auditor.tracing.trace import EXITS, Op, Trace
from torchsleuth.origin import Origin

MANY_ROUNDS = 64
ROUNDS_OF_ROWS = 32  # where each takes a row or an element, and no layer runs
LEAST_REPEATS = 8  # of one line, if others of the loop stand in the other branch
HOT_SHARE = 0.5
ITEM_REPEATS = 32
_TAKING = {"__getitem__", "select"}
_PARTING = {"unbind", "split", "chunk"}


def hot_lines(trace: Trace, step: slice) -> list[HotLine]:
    """Lines that made most of the step's autograd nodes, by running over and over in one call of their function.

    `step` are the calls from the start of the forward pass to the backward pass.
    """
    nodes: dict[tuple, list[Op]] = collections.defaultdict(list)
    exits: dict[tuple, list[Op]] = collections.defaultdict(list)
    taking: collections.Counter[tuple] = collections.Counter()
    total = 0
    for op in trace.ops[step]:
        if origin_of_place(op) is not Origin.USER:
            continue
        span, _ = expression(op.place.code, op.place.offset)
        if span is None:
            continue
        if op.name in _TAKING | _PARTING:
            taking[(op.place.code, span.line)] += len(op.outs)
        if op.name in EXITS:
            if op.place.direct:  # torch's own checks of arguments are not the program's reads
                exits[(op.place.code, span.line, op.place.frame_id)].append(op)
        elif any(seen.requires_grad for seen in op.outs):
            total += 1
            nodes[(op.place.code, span.line, op.place.frame_id)].append(op)
    found = []
    loops: dict[tuple, list[_Line]] = collections.defaultdict(list)
    for (code, line, frame), ops in nodes.items():
        repeats = max(collections.Counter(op.place.offset for op in ops).values())
        if repeats < LEAST_REPEATS or (loop := _loop_around(code, line)) is None or _layer_for_each(trace, ops) or _recurrent(trace, ops):
            continue
        loops[(loop.span.file, loop.span.line, frame)].append(_Line(code, line, ops, repeats, loop))
    hot: dict[tuple, list[_Line]] = collections.defaultdict(list)
    often: dict[tuple, int] = {}
    for (file, head, _), lines in loops.items():
        rounds = max([*(line.repeats for line in lines), *_in_branches(lines)])
        members = [line for line in lines if line.repeats >= rounds / LEAST_REPEATS]
        rows = sum(taking[(lines[0].code, n)] for n in _lines_of(lines[0])) >= rounds and not any(_runs_a_layer(trace, line.ops) for line in members)
        if rounds >= (ROUNDS_OF_ROWS if rows and all(_alike(line.ops) for line in members) else MANY_ROUNDS):
            hot[file, head] += members
            often[file, head] = max(rounds, often.get((file, head), 0))
    for where, members in hot.items():
        first, *others = sorted(members, key=lambda line: len(line.ops), reverse=True)
        together = sum(len(line.ops) for line in members)
        if together >= HOT_SHARE * total and (site := trace.site(first.ops[-1])) is not None:
            elements = max(math.prod(seen.size) for op in first.ops for seen in op.outs[:1])
            sites = {line.line: other for line in others if line.line != first.line and LEAST_REPEATS * len(line.ops) >= total and (other := trace.site(line.ops[-1])) is not None}
            around = tuple(_indexing(first.code, first.line, first.loop))
            found.append(HotLine(len(first.ops), total, first.repeats, site, first.loop, elements, "nodes", tuple(sites.values()), around, together, often[where]))
    if not found:
        reads: dict[Site, HotLine] = {}
        for (code, line, _), ops in exits.items():
            if len(ops) < ITEM_REPEATS:
                continue
            loop = _loop_around(code, line)
            site = trace.site(ops[0])
            if loop is not None and site is not None and not _runs_layers(trace, ops):
                known = reads.get(loop)
                reads[loop] = HotLine(0, total, len(ops), site, loop, 1, "item") if known is None else \
                    dataclasses.replace(known, repeats=known.repeats + len(ops), more=(*known.more, site))  # fmt: skip
        found += reads.values()
    return found


def _runs_layers(trace: Trace, ops: list[Op]) -> bool:
    """Between one read and the next, layers run (a rollout, a decoder that chooses its next token): no loop over elements."""
    weights = set(trace.parameters)
    turns = [sum(any(seen.key in weights for seen in op.ins) for op in trace.ops[a.index : b.index]) for a, b in itertools.pairwise(ops)]
    return sum(turn > 0 for turn in turns) >= len(turns) // 2


class _Line(typing.NamedTuple):
    code: typing.Any
    line: int
    ops: list[Op]
    repeats: int
    loop: Site


def _lines_of(line: _Line) -> range:
    """Those of the innermost loop around this one, with its head."""
    node = _innermost(line.code, line.line)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1) if node is not None else range(0)


def _in_branches(lines: list[_Line]) -> list[int]:
    """How often the two branches of an `if` in this loop ran together."""
    node = _innermost(lines[0].code, lines[0].line)
    found = []
    for choice in ast.walk(node) if node is not None else ():
        if isinstance(choice, ast.If) and choice.orelse:
            sides = [max((line.repeats for line in lines if side[0].lineno <= line.line <= (side[-1].end_lineno or 0)), default=0) for side in (choice.body, choice.orelse)]
            found.append(sum(sides))
    return found


def _alike(ops: list[Op]) -> bool:
    """Each round gave as much as the others: what differs from row to row is no tensor operation's business."""
    sizes: dict[int, set[tuple]] = collections.defaultdict(set)
    for op in ops:
        sizes[op.place.offset].update(seen.size for seen in op.outs[:1])
    return all(len(each) == 1 for each in sizes.values())


def _runs_a_layer(trace: Trace, ops: list[Op]) -> bool:
    return any(seen.key in trace.parameters for op in ops for seen in op.ins)


def _layer_for_each(trace: Trace, ops: list[Op]) -> bool:
    """A layer of its own in each round: a loop over layers, not over rows."""
    weights: dict[int, list[frozenset[int]]] = collections.defaultdict(list)
    for op in ops:
        if mine := frozenset(seen.key for seen in op.ins if seen.key in trace.parameters):
            weights[op.place.offset].append(mine)
    return any(2 * len(set(each)) > len(each) > 1 for each in weights.values())


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
    best = _innermost(code, line)
    if best is None:
        return None
    head: typing.Any = best.iter if isinstance(best, ast.For) else best.test if isinstance(best, ast.While) else best
    return site_of_node(code.co_filename, head, code.co_qualname)


def _innermost(code: typing.Any, line: int) -> typing.Any:
    """The innermost `for` or `while` statement around this line, or comprehension, in the same function."""
    tree = syntax_of(code.co_filename)
    if tree is None:
        return None
    best: typing.Any = None
    for node in _loops_of(tree):
        if code.co_firstlineno <= node.lineno <= line <= (node.end_lineno or 0):
            if isinstance(node, (ast.For, ast.While)) and line == node.lineno and line != node.end_lineno and not _one_line(node):
                continue
            if best is None or node.lineno >= best.lineno:
                best = node
    return best


@functools.lru_cache(maxsize=8)
def _loops_of(tree: ast.AST) -> tuple[typing.Any, ...]:
    """Walked once for a file: each audit asks, and a file may be long."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)))


def _indexing(code: typing.Any, line: int, inner: Site) -> list[Site]:
    """The `for` statements around that loop whose variable is an index on this line: `k[i, j] = ...`"""
    tree = syntax_of(code.co_filename)
    if tree is None:
        return []
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and code.co_firstlineno <= n.lineno <= line <= (n.end_lineno or 0)]
    used = {
        name.id for n in ast.walk(tree) if isinstance(n, ast.Subscript) and n.lineno <= line <= (n.end_lineno or 0)
        for name in ast.walk(n.slice) if isinstance(name, ast.Name)
    }  # fmt: skip
    return [
        site_of_node(code.co_filename, n.iter, code.co_qualname) for n in loops
        if n.iter.lineno != inner.span.line and isinstance(n.target, ast.Name) and n.target.id in used
    ]  # fmt: skip


def _one_line(node: ast.For | ast.While) -> bool:
    return node.lineno == node.body[0].lineno
