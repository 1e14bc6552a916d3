"""Masks and position tables against what they are applied to: which dimensions they belong to, and how much of them is needed.

Where scores are square ([batch, heads, queries, keys]) sizes alone do not say whether a mask of [batch, length] lies along the
queries or the keys: the softmax does, which is taken over the keys.
"""

from __future__ import annotations

import ast
import itertools
import re

from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.forward.operands import Failed, text_of
from torchsleuth.fixes.script import Script, called, path_of
from torchsleuth.model import Edit, Fix

_TABLE = re.compile(r"(^|[._])(pe|pos|posn?_?(emb|enc)\w*|position\w*|time_emb\w*|wpe)($|[._\d])", re.IGNORECASE)
_TRIANGLE = re.compile(r"(^|[._])(\w*mask\w*|causal\w*|tril|triu|bias)($|[._\d])", re.IGNORECASE)


def placed(failed: Failed, small: Operand, large: Operand) -> Fix | None:
    """`mask` [batch, keys] → `mask[:, None, None, :]` against [batch, heads, queries, keys]."""
    rank = len(large.shape)
    if not 2 <= len(small.shape) < rank or 1 in small.shape:
        return None
    fits = [axes for axes in itertools.combinations(range(rank), len(small.shape)) if all(large.shape[a] == size for a, size in zip(axes, small.shape, strict=True))]
    why = ""
    if len(fits) > 1:
        # The batch comes first; the last dimension of a mask is the one that the softmax goes over.
        axis, line = _softmax_axis(failed, large)
        why = f"the last one is what the softmax in line {line} goes over"
        if axis is None and not line and rank == 4 and failed.operation.name.startswith("masked_fill") and large.shape[-1] == large.shape[-2]:
            axis, why = rank - 1, "right if the last one holds the keys, over which a softmax goes"
        if axis is None and not line:
            axis = _reduced_axis(failed, rank)
            why = "the last one is what is summed up after it"
        fits = [axes for axes in fits if axes[0] == 0 and axes[-1] == axis] if axis is not None else []
    if len(fits) != 1:
        return None
    axes = fits[0]
    index = ", ".join(":" if axis in axes else "None" for axis in range(axes[-1] + 1))
    index += ", None" * (rank - 1 - axes[-1])
    words = ", ".join(str(axis) for axis in axes[:-1])
    meaning = f"{small.called} then lies along dimensions {words} and {axes[-1]} of {large.called}; {why or 'its sizes fit nowhere else'}."
    places = [failed.node_of(small), *((failed.script, node) for node in _unpacked_with(failed, small))]
    if places[0] is None:
        return None
    edits = [edit for script, node in places for edit in script.wrapped(node, f"[{index}]")]
    return failed.scripts.fix(f"Add the missing dimensions: `[{index}]`.", edits, meaning, safe=False)


def _unpacked_with(failed: Failed, small: Operand) -> list[ast.expr]:
    """`beta` of `x * gamma + beta`, where one statement gave both: it lacks the same dimensions, and would fail next."""
    script, call = failed.script, failed.call
    if script is None or not isinstance(call, ast.BinOp) or not text_of(small):
        return []
    scope = [n for n in script.own_nodes(script.scope_of(call)) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple)]
    together = {name for n in scope for names in [{path_of(item) for item in n.targets[0].elts}] if small.source in names for name in names} - {small.source, ""}
    around = itertools.takewhile(lambda node: isinstance(node, ast.BinOp), script.ancestors(call))
    return [side for node in around for side in (node.left, node.right) if path_of(side) in together]


def _softmax_axis(failed: Failed, scores: Operand) -> tuple[int | None, int]:
    """The dimension of the softmax that the failing expression's result goes into, in the same function, and its line."""
    script, call = failed.script, failed.call
    statement = script.statement_of(call) if script is not None and call is not None else None
    if statement is None:
        return None, 0
    names = {path_of(target) for target in getattr(statement, "targets", [getattr(statement, "target", None)])} | {text_of(scores)}
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        names.add(path_of(call.func.value))
    found = set()
    for node in script.own_nodes(script.scope_of(call)):
        if isinstance(node, ast.Call) and called(node) in ("softmax", "log_softmax", "Softmax", "softmin") and node.lineno >= statement.lineno:
            subject = _subject(script, node)
            if subject is not None and (_is_within(script, call, subject) or names - {""} & {path_of(n) for n in ast.walk(subject)} - {""}):
                found.add((_dimension(script, node), node.lineno))
    axes = {axis for axis, _ in found}
    if len(axes) != 1 or None in axes:
        return None, max((line for _, line in found), default=0)
    axis, line = min(found)
    return axis % len(scores.shape) if -len(scores.shape) <= axis < len(scores.shape) else None, line


def _reduced_axis(failed: Failed, rank: int) -> int | None:
    """`1` of `(x * mask).sum(dim=1)`: what a mask leaves out is left out of a sum."""
    script, call = failed.script, failed.call
    method = script.parent(call) if script is not None and isinstance(call, ast.BinOp) and isinstance(call.op, ast.Mult) else None
    outer = script.parent(method) if isinstance(method, ast.Attribute) and method.attr in ("sum", "mean") else None
    axis = _dimension(script, outer) if isinstance(outer, ast.Call) and outer.func is method else None
    return axis % rank if axis is not None and -rank <= axis < rank else None


def _subject(script: Script, node: ast.Call) -> ast.expr | None:
    """What is passed through it: `x` of `x.softmax(-1)`, `F.softmax(x, -1)`, `nn.Softmax(-1)(x)`."""
    outer = script.parent(node)
    if called(node) == "Softmax":
        return outer.args[0] if isinstance(outer, ast.Call) and outer.func is node and outer.args else None
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        return node.func.value
    return node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "input"), None)


def _is_module(node: ast.expr) -> bool:
    return path_of(node) in ("torch", "F", "th", "nn.functional", "torch.nn.functional", "functional", "torch.special")


def _is_within(script: Script, node: ast.AST, outer: ast.AST) -> bool:
    return node is outer or any(ancestor is outer for ancestor in script.ancestors(node))


def _dimension(script: Script, node: ast.Call) -> int | None:
    given = next((k.value for k in node.keywords if k.arg in ("dim", "axis")), None)
    if given is None and node.args:
        own = called(node) == "Softmax" or isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
        given = node.args[0] if own else node.args[1] if len(node.args) > 1 else None
    try:
        value = ast.literal_eval(given) if given is not None else None
    except ValueError:
        return None
    return value if type(value) is int else None


def shortened(failed: Failed, one: Operand, other: Operand) -> Fix | None:
    """`x + self.pe` → `x + self.pe[:, :x.size(1)]`: of a table of positions, or of a square mask, as much as the sequence has."""
    for table, data in ((one, other), (other, one)):
        rank, offset = len(table.shape), len(data.shape) - len(table.shape)
        name = f"{table.source} {table.tensor.name}"
        if offset < 0 or rank < 2:
            continue
        axes = [k for k in range(rank) if table.shape[k] != data.shape[k + offset] and 1 not in (table.shape[k], data.shape[k + offset])]
        if not axes or any(table.shape[k] < data.shape[k + offset] for k in axes):
            continue
        square = axes == [rank - 2, rank - 1] and len({table.shape[k] for k in axes}) == 1 == len({data.shape[k + offset] for k in axes})
        positions = len(axes) == 1 and axes[0] < rank - 1 and table.shape[-1] == data.shape[-1]
        if not (square and any(map(_TRIANGLE.search, name.split())) or positions and any(map(_TABLE.search, name.split()))):
            continue
        known, before = _named(failed, data)
        if not known:
            continue
        index = ", ".join(f":{known}.size({k + offset - len(data.shape) if square else k + offset})" if k in axes else ":" for k in range(axes[-1] + 1))
        sizes = f"{data.shape[axes[0] + offset]} of {table.shape[axes[0]]}"
        meaning = f"Of {table.called} the first {sizes} {'rows and columns' if square else 'positions'} are used."
        found = failed.node_of(table)
        edits = [*before, *found[0].wrapped(found[1], f"[{index}]")] if found is not None else None
        return failed.scripts.fix(f"Use as much of it as the sequence has: `[{index}]`.", edits, meaning, safe=False)
    return None


def _named(failed: Failed, data: Operand) -> tuple[str, list[Edit]]:
    """A name for an operand: its own, or that of a variable that is set to it first, so that it is computed once."""
    if text_of(data):
        return text_of(data), []
    found = failed.node_of(data)
    statement = found[0].statement_of(found[1]) if found is not None else None
    if not isinstance(statement, (ast.Assign, ast.Return)) or not found[0].is_alone_on_line(statement) or statement.lineno != statement.end_lineno:
        return "", []
    script, node = found
    call = failed.call
    # What is computed before it must stay before it.
    if not isinstance(call, ast.BinOp) or call.left is not node or statement.value is not call:
        return "", []
    taken = {n.id for n in ast.walk(script.scope_of(call)) if isinstance(n, ast.Name)}
    name = next((name for name in ("h", "hidden", "features") if name not in taken), "")
    return name, [*script.before(statement, f"{name} = {script.segment(node)}"), script.replace(node, name)] if name else []
