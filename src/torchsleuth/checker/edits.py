"""One-step changes of a method's source that might put a gradient right, likeliest first.

Each undoes one slip that people make: a sign, an operand, an axis, a mean for a sum, a transposition, a factor,
the order of returns, the wrong saved tensor. Whether it helps is for `mend` to find out.
"""

from __future__ import annotations

import ast
import itertools
import typing

from torchsleuth.checker.change import Change, Scope, swapped
from torchsleuth.checker.exchanges import (
    accumulations,
    axes,
    borrowed,
    calls,
    comparisons,
    constants,
    counts,
    duplicates,
    inversions,
    keywords,
    names,
    one_of_each_row,
    operators,
    orders,
    picked_back,
    powers,
    unpackings,
)
from torchsleuth.checker.insertions import both_sides, factors, insertions, projections, quotients, signs, terms, turned, unused, wrapped
from torchsleuth.checker.source import Method, own_nodes


def changes(
    method: Method, scope: Scope, first: ast.AST | None, relation: str = "", suspicious: typing.Iterable[ast.AST] = ()
) -> typing.Iterator[Change]:
    """Every candidate: what the relation suggests first.

    The expression `first` before what is `suspicious`, that before the rest, and later lines before earlier ones.
    """
    nodes = list(own_nodes(method.tree))
    near = set(_places(first)) if first is not None else set()
    near |= {id(node) for node in nodes if isinstance(node, (ast.Return, ast.Assign)) and not near.isdisjoint(_places(node))}
    doubtful = {place for statement in suspicious for place in _places(statement)}
    doubtful |= {id(node) for node in nodes if isinstance(node, ast.Return)}
    nodes.sort(key=lambda node: (id(node) not in near, -getattr(node, "lineno", 0)))
    likely = [node for node in nodes if id(node) in near or id(node) in doubtful]
    for node in nodes:
        yield from unpackings(method, scope, node)
    families = dict.fromkeys((*SUGGESTED.get(relation, ()), *FAMILIES))
    for part in (likely, [node for node in nodes if id(node) not in near and id(node) not in doubtful]):
        for family, node in itertools.product(families, part):
            yield from family(method, scope, node)


def _places(tree: ast.AST) -> typing.Iterator[int]:
    """The nodes of a tree that have a place in the text: operators and contexts are shared by all trees."""
    return (id(node) for node in ast.walk(tree) if isinstance(node, (ast.expr, ast.stmt)))


def saved_changes(method: Method, others: typing.Sequence[str]) -> typing.Iterator[Change]:
    """Other things to save: for the arguments of `save_for_backward` and what is put on ctx."""
    for node in own_nodes(method.tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("save_for_backward", "save_for_forward"):
            targets = [a for a in node.args if not isinstance(a, ast.Starred)]
            for a, b in itertools.combinations(targets, 2):
                yield Change(node, swapped(method, node, a, b))
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) for t in node.targets):
            targets = [node.value]
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
                yield Change(node.value, str(not node.value.value), True)
        yield from accumulations(method, Scope({}, {}, ()), node)
        for target in targets:
            for name in others:
                if method.segment(target) != name:
                    yield Change(target, name, True)
            yield from constants(method, Scope({}, {}, ()), target)
            for inner in ast.walk(target):
                if inner is not target:
                    yield from constants(method, Scope({}, {}, ()), inner)
                    if isinstance(inner, ast.Name):
                        for name in others:
                            if inner.id != name:
                                yield Change(inner, name)


FAMILIES = (
    unused, duplicates, one_of_each_row, picked_back, both_sides, orders, axes, operators, constants, calls, keywords, comparisons, powers, names, inversions, accumulations, signs, factors, counts, wrapped, turned, borrowed, insertions,
    projections, quotients, terms,
)  # fmt: skip
SUGGESTED = {
    "factor": (operators, orders, signs, calls, constants, factors),
    "other-input": (orders, names),
    "transposed": (calls, orders, wrapped),
    "shape": (orders, axes, calls, constants, wrapped),
    "reduction": (axes, calls, constants),
    "count": (counts, orders),
    "no-grad-output": (factors, names),
    "tensor-factor": (powers, factors, names, operators),
    "other-tensor": (orders, names),
    "adjoint": (calls, orders, wrapped),
    "permuted": (turned, orders, calls, wrapped),
    "condition": (comparisons, orders, constants, duplicates),
    "inverted": (operators, inversions, comparisons, orders),
}
