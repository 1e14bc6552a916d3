"""Changes that put in what is missing: a sign, a factor, a term, a reduction, a transposition."""

from __future__ import annotations

import ast
import itertools
import typing

from torchsleuth.checker.change import Change, Scope, bracketed, formulas, listed
from torchsleuth.checker.source import Method, own_nodes

# Functions of matrices: a transposition is as easily forgotten there as in `@`.
MATRIX = frozenset("solve mm bmm matmul inv pinv lstsq solve_triangular cholesky_solve lu_solve baddbmm addmm conv_transpose1d linear".split())


def signs(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    for element in (*formulas(node), *listed(node)):
        yield Change(element, f"-{bracketed(method, element)}", True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.MatMult, ast.Div)):
        yield Change(node, f"-{method.segment(node)}")


def factors(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A factor put in: a tensor, a size, a number."""
    targets = [(e, True) for e in formulas(node)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        targets += [(node.left, False), (node.right, False)]
    targets += [(e, False) for e in listed(node)]
    for element, alone in targets:
        text = bracketed(method, element)
        for name in scope.tensors:
            yield Change(element, f"{text} * {name}", alone)
            if alone:
                yield Change(element, f"{text} * ({name} > 0)", alone)
            if isinstance(element, (ast.BinOp, ast.Name)):
                # The derivatives of sigmoid and tanh, by their results.
                yield Change(element, f"{text} * (1 - {name})", alone)
                yield Change(element, f"{text} * (1 - {name} * {name})", alone)
        for name in scope.numbers:
            yield Change(element, f"{text} * {name}", alone)
            yield Change(element, f"{text} / {name}", alone)
        for name in scope.numbers[:3]:
            yield Change(element, f"{text} * (1 - {name})", alone)
        for number, name in itertools.product(scope.numbers[:3], scope.tensors):
            yield Change(element, f"{number} * {name} * {text}", alone)
        yield Change(element, f"{text} * 2", alone)
        yield Change(element, f"{text} / 2", alone)
        for name, rank in _shapes(scope).items():
            for dim in range(rank):
                yield Change(element, f"{text} / {name}[{dim}]", alone)
                if alone:
                    yield Change(element, f"{text} * {name}[{dim}]", alone)
        for name in scope.shapes if alone else ():
            yield Change(element, f"{text} / {name}.numel()", alone)
            yield Change(element, f"{text} * {name}.numel()", alone)
        for name in scope.tensors if alone else ():
            yield Change(element, f"{text} / {name}", alone)


def projections(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The sum that a normalisation (softmax, layer norm, division by a norm) subtracts from a gradient."""
    targets = [(e, True) for e in formulas(node) if isinstance(e, (ast.BinOp, ast.Name))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        targets += [(side, False) for side in (node.left, node.right) if isinstance(side, ast.Name)]
    for element, alone in targets:
        text = bracketed(method, element)
        yield Change(element, f"{text} - {text}.mean(-1, keepdim=True)", alone)
        for name, rank in scope.tensors.items():
            if rank:
                yield Change(element, f"{text} - ({name} * {text}).sum(-1, keepdim=True)", alone)
                yield Change(element, f"{text} - {name} * ({name} * {text}).sum(-1, keepdim=True)", alone)
                yield Change(element, f"{text} - {name} * ({name} * {text}).mean(-1, keepdim=True)", alone)


def quotients(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A division by a product of two tensors: of two norms, say."""
    for element in formulas(node):
        for a, b in itertools.combinations(scope.tensors, 2):
            yield Change(element, f"{bracketed(method, element)} / ({a} * {b})", True)


def unused(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The gradient of an output that backward never looks at, put in as a term; a tensor that was saved for nothing, as a factor."""
    read = {part.id for part in own_nodes(method.tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    for argument in method.tree.args.args[1:]:
        if argument.arg not in read and argument.arg in scope.tensors:
            for element in formulas(node):
                yield Change(element, f"{argument.arg} + {method.segment(element)}", True)
    kept = [name for name in _unpacked(method) if name not in read and name in scope.tensors] if _holds(node) else []
    for name, operand in itertools.product(kept, _holds(node)):
        text = bracketed(method, operand)
        for laid in (name, f"{name}.unsqueeze(-1)", f"{name}.unsqueeze(1)", f"{name}.unsqueeze(0)"):
            yield Change(operand, f"{text} * {laid}")
            yield Change(operand, f"{text} / {laid}")


def _unpacked(method: Method) -> list[str]:
    """The names that saved tensors are given; one with `_` in front is not wanted."""
    return [
        part.id for node in own_nodes(method.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "saved_tensors"
        for part in ast.walk(node.targets[0]) if isinstance(part, ast.Name) and not part.id.startswith("_")
    ]  # fmt: skip


def _holds(node: ast.AST) -> list[ast.expr]:
    """What a factor may stand beside: a whole formula, and the tensor that an index picks from."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
        return [node.value]
    return formulas(node)


def terms(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A term put in: the gradient of another output, a state passed on."""
    for element in formulas(node):
        if isinstance(element, (ast.BinOp, ast.Call)):
            for name in scope.tensors:
                yield Change(element, f"{name} + {method.segment(element)}", True)
                yield Change(element, f"{method.segment(element)} - {name}", True)


def _shapes(scope: Scope) -> dict[str, int]:
    return {**scope.sizes, **{f"{name}.shape": rank for name, rank in scope.shapes.items()}}


def wrapped(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A whole gradient transposed, summed, flipped or reshaped; an operand of a product transposed."""
    for element in formulas(node) if _is_returned(method, node) else ():
        text = bracketed(method, element)
        yield Change(element, f"{text}.transpose(-1, -2)", True)
        for dim in (0, 1, 2, -1):
            yield Change(element, f"{text}.sum({dim})", True)
            yield Change(element, f"{text}.unsqueeze({dim})", True)
            yield Change(element, f"{text}.flip({dim})", True)
        for name in scope.sizes:
            yield Change(element, f"{text}.reshape({name})", True)
            yield Change(element, f"{text}.expand({name})", True)
        for name in scope.shapes:
            yield Change(element, f"{text}.reshape({name}.shape)", True)
            yield Change(element, f"{text}.expand_as({name})", True)
            for dim in (1, 0, -1):
                yield Change(element, f"{text}.unsqueeze({dim}).expand_as({name})", True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.MatMult,)):
        for operand in (node.left, node.right):
            yield Change(operand, f"{bracketed(method, operand)}.transpose(-1, -2)")
        matrix = method.segment(node.right)
        if scope.tensors.get(matrix, 0) > 1:
            # A quadratic form whose matrix was taken to be symmetric.
            yield Change(node, f"{bracketed(method, node.left)} @ ({matrix} + {matrix}.transpose(-1, -2)) / 2")
        if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.MatMult):
            # `A @ g @ B` for the map `x -> A @ x @ B`: both sides.
            a, g, b = node.left.left, node.left.right, node.right
            yield Change(node, f"{bracketed(method, a)}.transpose(-1, -2) @ {bracketed(method, g)} @ {bracketed(method, b)}.transpose(-1, -2)")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MATRIX:
        for operand in node.args:
            if not isinstance(operand, (ast.Constant, ast.Starred)):
                yield Change(operand, f"{bracketed(method, operand)}.transpose(-1, -2)", True)


def turned(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """Dimensions exchanged before they are put together: heads that were split off and transposed in forward."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("reshape", "view", "flatten"):
        owner, rest = bracketed(method, node.func.value), method.segment(node)[len(method.segment(node.func)) :]
        how = "flatten" if node.func.attr == "flatten" else "reshape"
        for a, b in ((1, 2), (0, 1), (-2, -1), (0, 2), (1, 3), (2, 3)):
            yield Change(node, f"{owner}.transpose({a}, {b}).{how}{rest}")


def both_sides(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """Of differences between all pairs each element is in a row and in a column."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sum" and len(node.args) == 1 and not node.keywords:
        given = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if given in (0, 1):
            owner = bracketed(method, node.func.value)
            for sign in ("-", "+"):
                yield Change(node, f"{owner}.sum({given}) {sign} {owner}.sum({1 - given})")


def _is_returned(method: Method, node: ast.AST) -> bool:
    """A return, or an assignment to a name that is returned: its value is a gradient, not a step on the way."""
    if not isinstance(node, ast.Assign):
        return isinstance(node, ast.Return)
    names = {t.id for t in node.targets if isinstance(t, ast.Name)}
    for other in own_nodes(method.tree):
        if isinstance(other, ast.Return) and other.value is not None:
            elements = other.value.elts if isinstance(other.value, ast.Tuple) else [other.value]
            if any(isinstance(e, ast.Name) and e.id in names for e in elements):
                return True
    return False


def insertions(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A factor, a term or a reduction put in at an operand deep inside a formula."""
    operands: list[ast.expr] = []
    alone = isinstance(node, ast.Call)  # an argument needs no brackets
    if isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.Call):
        operands = [a for a in node.args if not isinstance(a, (ast.Constant, ast.Starred, ast.UnaryOp))]
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.BinOp, ast.Name)):
            operands.append(node.func.value)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        operands = [node.operand]
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
        operands = [node.value]  # rows that are picked from what should have been divided, say
    for operand in operands:
        if isinstance(operand, ast.Name) and operand.id not in scope.tensors:
            continue
        text = bracketed(method, operand)
        whole = alone and operand is not getattr(getattr(node, "func", None), "value", None)
        yield Change(operand, f"2 * {text}", whole)
        yield Change(operand, f"{text} / 2", whole)
        for name in (*scope.tensors, *scope.numbers):
            yield Change(operand, f"{text} * {name}", whole)
        for name in (*scope.tensors, *scope.numbers):
            yield Change(operand, f"{text} - {name}", whole)
            yield Change(operand, f"{text} / {name}", whole)
            yield Change(operand, f"{text} + {name}", whole)
            yield Change(operand, f"{name} - {text}", whole)
        yield Change(operand, f"-{text}", whole)
        yield Change(operand, f"-{text} / 2", whole)
        yield Change(operand, f"1 - {text}", whole)
        yield Change(operand, f"1 + {text}", whole)
        for name in scope.tensors:
            yield Change(operand, f"{text} * (1 - {name})", whole)
        for number in scope.donors:
            if number != text:
                yield Change(operand, f"{text} * {number}", whole)
                yield Change(operand, f"{text} / {number}", whole)
        if not isinstance(operand, ast.Constant):
            for reduction in ("sum", "mean"):
                for dim in (-1, 0, 1):
                    yield Change(operand, f"{text}.{reduction}({dim}, keepdim=True)", whole)
