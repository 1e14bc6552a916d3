"""Which statements of `backward` a returned gradient comes from, read from the source by names.

Where several gradients are wrong and others are right, the slip is in what only the wrong ones come from.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth.checker.source import SAME_VALUES, Method, base_name, followed, own_nodes, returned_expression

Statement = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.Expr
COLLECTING = ("append", "extend", "insert")


def made_of(statement: Statement) -> ast.expr:
    """What a statement binds its names to."""
    return statement.iter if isinstance(statement, ast.For) else statement.value


def comes_from(method: Method, expression: ast.AST, lines: frozenset[int] | None = None) -> dict[int, Statement]:
    """The assignments and loops an expression depends on, by the id of what they bind: every binding of a name counts, as far as it ran."""
    bindings: dict[str, list[tuple[Statement, tuple[ast.expr, ...]]]] = {}
    for node in own_nodes(method.tree):
        if isinstance(node, Statement) and made_of(node) is not None and (lines is None or node.lineno in lines or node.end_lineno in lines):
            for name, parts in _written(node):
                bindings.setdefault(name, []).append((node, parts))
    found: dict[int, Statement] = {}
    seen: set[tuple[int, str]] = set()
    pending: list[ast.AST] = [expression]
    while pending:
        for part in ast.walk(pending.pop()):
            if isinstance(part, ast.Name):
                for statement, parts in bindings.get(part.id, ()):
                    if (id(statement), part.id) not in seen and statement.lineno <= _line(expression, statement):
                        seen.add((id(statement), part.id))
                        found[id(parts[0])] = statement
                        pending += parts
    return found


def _line(expression: ast.AST, statement: Statement) -> int:
    return getattr(expression, "lineno", statement.lineno)


def target_of(statement: Statement) -> ast.expr | None:
    """What a statement binds or writes into: of `dw.add_(g)` and `parts.append(g)` too."""
    if isinstance(statement, ast.Expr):
        call = statement.value
        writes = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and (call.func.attr in COLLECTING or call.func.attr.endswith("_"))
        return call.func.value if writes else None
    return statement.targets[0] if isinstance(statement, ast.Assign) else statement.target


def _written(node: Statement) -> typing.Iterator[tuple[str, tuple[ast.expr, ...]]]:
    """The names a statement changes, and what the change is made of: `dq, dk = g @ k, g.mT @ q` makes each of one part.

    The names of an index (`dq[start:stop] = ...`) are read there, not written.
    """
    pending = [(t, made_of(node)) for t in node.targets] if isinstance(node, ast.Assign) else [(target_of(node), made_of(node))]
    while pending:
        target, value = pending.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and not isinstance(node, ast.For) else ()
            paired = len(values) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in (*values, *target.elts))
            pending += zip(target.elts, values if paired else [value] * len(target.elts), strict=True)
        elif target is not None and (name := base_name(target.value if isinstance(target, ast.Starred) else target)) is not None:
            yield name, (value, target) if isinstance(target, ast.Subscript) else (value,)


def returned(method: Method, element: int, count: int, lines: frozenset[int] | None) -> ast.expr | None:
    return returned_expression(method, element, count, lines, follow=False)


def suspicious(
    method: Method, wrong: typing.Iterable[int], right: typing.Iterable[int], count: int, lines: frozenset[int] | None = None
) -> dict[int, Statement]:
    """The assignments that wrong gradients come from and right ones do not."""
    out: dict[int, Statement] = {}
    for k in wrong:
        expression = returned(method, k, count, lines)
        out |= comes_from(method, expression, lines) if expression is not None else {}
    for k in right:
        expression = returned(method, k, count, lines)
        for key in comes_from(method, expression, lines) if expression is not None else ():
            out.pop(key, None)
    return out


def common(method: Method, wrong: typing.Sequence[int], right: typing.Iterable[int], count: int, lines: frozenset[int] | None = None) -> Statement | None:
    """The assignment that all wrong gradients come from and no right one does; None where there are several, side by side."""
    left = suspicious(method, wrong, right, count, lines)
    for k in wrong:
        expression = returned(method, k, count, lines)
        if expression is None or isinstance(expression, ast.Tuple):
            return None
        mine = comes_from(method, expression, lines)
        left = {key: statement for key, statement in left.items() if key in mine}
    found = [s for s in left.values() if not isinstance(s, ast.For) and not _unpacks(s)]
    # `d = grad_output`, where the derivative is left out, is all that there may be.
    found = found or [s for s in left.values() if isinstance(made_of(s), ast.Name) and made_of(s).id in {a.arg for a in method.tree.args.args[1:]}]
    last = max(found, key=lambda s: s.lineno, default=None)
    before = comes_from(method, made_of(last), lines) if last is not None else {}
    return last if all(s is last or s in before.values() for s in found) else None


def _unpacks(statement: Statement) -> bool:
    """What ctx kept, or a part of it, given a name: no formula."""
    value = statement.value
    return all(isinstance(_owner(part), (ast.Name, ast.Constant)) for part in (value.elts if isinstance(value, ast.Tuple) else [value]))


def _owner(node: ast.expr) -> ast.expr:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def summed(method: Method, value: ast.expr, lines: frozenset[int] | None = None) -> ast.expr:
    """`dw` of `dw.sum(0)`, and what it was bound to: a term that is missing from the sum is missing from its parts."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("sum", "mean", "sum_to_size", *SAME_VALUES):
        if not isinstance(value.func.value, ast.Name):
            return value
        found = followed(method, value.func.value, lines)
        if not isinstance(found, (ast.BinOp, ast.Call)):
            return value
        value = found
    return value


def times_grad(method: Method, value: ast.expr, lines: frozenset[int] | None = None) -> ast.expr:
    """`d` of `grad_output * d` and `grad_output * d / n`, and what it was bound to: there the formula is."""
    grads = {a.arg for a in method.tree.args.args[1:]}
    inner = value
    while isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
        inner = inner.left
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
        sides = [inner.left, inner.right]
        names = [s for s in sides if isinstance(s, ast.Name) and s.id not in grads]
        if len(names) == 1 and any(isinstance(s, ast.Name) and s.id in grads for s in sides):
            found = followed(method, names[0], lines)
            return found if isinstance(found, (ast.BinOp, ast.UnaryOp, ast.Call)) else value
    return value


def deciding(method: Method, grad: int, alone: frozenset[int], together: frozenset[int]) -> ast.expr | None:
    """The condition on an output's gradient that takes another way where that output is used alone than where all are."""
    parameters = [a.arg for a in method.tree.args.args[1:]]
    for node in own_nodes(method.tree):
        if isinstance(node, ast.If) and grad < len(parameters):
            names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)} & set(parameters)
            first = node.body[0].lineno
            missed = parameters[grad] in names and first in together - alone
            if names and (missed or first in alone - together and any(isinstance(part, ast.Return) for part in node.body)):
                return node.test
    return None
