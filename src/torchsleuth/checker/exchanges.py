"""Changes that exchange what is there: another order, operator, constant, function, comparison or name."""

from __future__ import annotations

import ast
import itertools
import typing

from torchsleuth.checker.change import Change, Scope, bracketed, offset, swapped
from torchsleuth.checker.source import Method, own_nodes

SWAPS = {"sum": ("mean",), "mean": ("sum",), "cos": ("sin",), "sin": ("cos",), "gt": ("lt", "ge"), "lt": ("gt", "le"), "ge": ("le",),
         "le": ("ge",), "amax": ("sum",), "exp": ("log",), "log": ("exp",), "tanh": ("sigmoid",), "sigmoid": ("tanh",),
         "prod": ("sum",), "max": ("sum",), "min": ("sum",), "zeros_like": ("ones_like",), "ones_like": ("zeros_like",),
         "sqrt": ("rsqrt",), "rsqrt": ("sqrt",), "lgamma": ("digamma",),
         "scatter": ("scatter_add",), "index_copy": ("index_add",), "scatter_": ("scatter_add_",), "index_copy_": ("index_add_",)}  # fmt: skip
MODULES = frozenset(("torch.", "F.", "math.", "np.", "torch.linalg.", "torch.nn.functional."))
UNDOABLE = frozenset("t transpose flip mT T permute abs neg sign conj roll square sqrt detach squeeze unsqueeze".split())
OPERATORS = {ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/", "@"), ast.Div: ("*",), ast.MatMult: ("*",)}
COMPARISONS = {ast.Gt: ("<", ">=", "<=", "=="), ast.Lt: (">", "<=", ">=", "=="), ast.GtE: ("<=", ">"), ast.LtE: (">=", "<"),
               ast.Eq: ("!=",), ast.NotEq: ("==",)}  # fmt: skip


def unpackings(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The saved tensors unpacked by the names, and in the order, that forward saved them."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Attribute) and node.value.attr == "saved_tensors":
        names = [e.id for e in node.targets[0].elts if isinstance(e, ast.Name)]
        if scope.saved and names != list(scope.saved) and sorted(names) == sorted(scope.saved):
            yield Change(node.targets[0], ", ".join(scope.saved), True)


def orders(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """Returned gradients, unpacked tensors and arguments in another order."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        for a, b in itertools.combinations(node.value.elts, 2):
            yield Change(node.value, swapped(method, node.value, a, b), True)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
        elements = node.targets[0].elts
        for a, b in itertools.combinations(elements, 2):
            yield Change(node.targets[0], swapped(method, node.targets[0], a, b), True)
    if isinstance(node, ast.Call) and 1 < len(node.args) < 8:
        for a, b in itertools.combinations(node.args, 2) if len(node.args) < 4 else itertools.pairwise(node.args):
            yield Change(node, swapped(method, node, a, b))
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load) and 1 < len(node.elts) < 8:
        for a, b in itertools.combinations(node.elts, 2):
            yield Change(node, swapped(method, node, a, b), True)
    if isinstance(node, ast.For):
        inner = node.iter.args[0] if _calls_by_name(node.iter, "reversed") and node.iter.args else None
        yield Change(node.iter, method.segment(inner) if inner is not None else f"reversed({method.segment(node.iter)})", True)
    if _calls_by_name(node, "range"):
        yield Change(node, f"reversed({method.segment(node)})", True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.MatMult, ast.Div)):
        yield Change(node, swapped(method, node, node.left, node.right))


def _calls_by_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def accumulations(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """An assignment to a part, or in a loop, that should add to what is there, and the reverse."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(target := node.targets[0], (ast.Name, ast.Subscript)):
        if isinstance(target, ast.Subscript) or _in_loop(method, node):
            yield Change(node, f"{method.segment(target)} += {method.segment(node.value)}", True)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        text, value = method.segment(node.target), method.segment(node.value)
        yield Change(node, f"{text} {'-' if isinstance(node.op, ast.Add) else '+'}= {value}", True)
        yield Change(node, f"{text} = {value}", True)


def _in_loop(method: Method, node: ast.stmt) -> bool:
    return any(isinstance(loop, ast.For) and loop.lineno <= node.lineno <= loop.end_lineno for loop in own_nodes(method.tree))


def duplicates(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """`grad[index] = value` and `grad[index] += value` keep one of the values that an index names twice: add them all."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else node.target if isinstance(node, ast.AugAssign) else None
    if not isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Add):
        return
    owner, places, value = method.segment(target.value), target.slice, method.segment(node.value)
    if isinstance(places, (ast.Name, ast.Attribute, ast.BinOp, ast.Call, ast.Subscript)):
        yield Change(node, f"{owner}.index_add_(0, {method.segment(places)}, {value})", True)
        yield Change(node, f"{owner}.index_put_(({method.segment(places)},), {value}, accumulate=True)", True)
    elif isinstance(places, ast.Tuple) and all(isinstance(p, (ast.Name, ast.Attribute)) for p in places.elts):
        yield Change(node, f"{owner}.index_put_(({method.segment(places).strip('()')}), {value}, accumulate=True)", True)


def picked_back(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """`g[order]` sorts once more what was sorted by `order`: the way back is the other one."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Name) and scope.tensors.get(node.slice.id) == 1:
        yield Change(node, f"{method.segment(node.value)}[{node.slice.id}.argsort()]")


def one_of_each_row(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """`p[:, target] -= 1` takes whole columns, where one element of each row is meant."""
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Tuple) and len(target.slice.elts) == 2:
        rows, places = target.slice.elts
        if isinstance(rows, ast.Slice) and rows.lower is rows.upper is rows.step is None and isinstance(places, ast.Name):
            yield Change(target, f"{method.segment(target.value)}[range(len({places.id})), {places.id}]", True)


def powers(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """An exponent one lower or one higher: the derivative of a power; the square below the line, as the quotient rule has it."""
    exponent = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, (ast.Name, ast.BinOp)):
        yield Change(node.right, f"{bracketed(method, node.right)} ** 2", True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        exponent = node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pow" and node.args:
        exponent = node.args[-1]
    if exponent is not None and not isinstance(exponent, ast.Constant):
        for step in ("- 1", "+ 1"):
            yield Change(exponent, f"{method.segment(exponent)} {step}", isinstance(node, ast.Call))


def borrowed(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A larger expression of forward, where backward has only a part of it: `x` for `x - x.mean(-1, keepdim=True)`.

    Or what forward does with the same tensor, where backward calls another method of it.
    """
    if not isinstance(node, (ast.Name, ast.Call, ast.BinOp, ast.Constant)) or isinstance(getattr(node, "ctx", None), ast.Store):
        return
    if isinstance(node, ast.Name) and node.id not in scope.tensors or isinstance(node, ast.Constant) and not isinstance(node.value, (int, float)):
        return
    text = ast.unparse(node)
    owner = ast.unparse(node.func.value) + "." if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    for formula, parts in scope.formulas:
        if text in parts or owner and owner not in MODULES and formula.startswith(owner) and formula != text:
            yield Change(node, formula)
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield Change(node, f"{text} * ({formula})")


def constants(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if not isinstance(node, ast.Constant):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            for n in (-1, -2, -3, 0, 1, 2):
                if -n != node.operand.value:
                    yield Change(node, str(n), True)
        return
    value = node.value
    if isinstance(value, bool):
        yield Change(node, str(not value))
    elif isinstance(value, int):
        # A name says what is meant; a number that happens to be its value does not.
        for name in scope.numbers[:6]:
            yield Change(node, name)
        for n in (0, 1, 2, 3, -1, -2, value + 1, value - 1, value * 2):
            if n != value:
                yield Change(node, str(n))
    elif isinstance(value, float):
        for number in scope.constants:
            if number != value:
                yield Change(node, repr(number))
        for number in (value * 2, value / 2, 1.0, -value, value * 3, value / 3):
            if number != value:
                yield Change(node, repr(number))
        for name in scope.numbers:
            yield Change(node, name)


def operators(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.BinOp):
        left, right = method.segment(node.left), method.segment(node.right)
        between = method.segment(node)
        start = offset(method, node)
        i = offset(method, node.left) - start + len(left)
        j = offset(method, node.right) - start
        symbol = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}.get(type(node.op))
        for operator in OPERATORS.get(type(node.op), ()):
            if symbol and between[i:j].count(symbol) == 1:
                yield Change(node, between[:i] + between[i:j].replace(symbol, operator) + between[j:])
        yield Change(node, left)
        if not isinstance(node.op, (ast.Div, ast.Pow)):
            yield Change(node, right if not isinstance(node.op, ast.Sub) else f"-{right}")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)) and not isinstance(node.operand, ast.Constant):
        yield Change(node, method.segment(node.operand))


def inversions(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The other elements of a mask."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.masks:
        yield Change(node, f"~{node.id}")


def calls(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return
    name = node.func.attr
    owner = bracketed(method, node.func.value)  # brackets are no part of what they enclose
    rest = method.segment(node)[len(method.segment(node.func)) :]
    for other in SWAPS.get(name, ()):
        yield Change(node, f"{owner}.{other}{rest}")
    if name == "cumsum" and len(node.args) == 1 and owner not in ("torch", "F") and ".flip(" not in owner:
        turned = f"flip({method.segment(node.args[0])})"
        yield Change(node, f"{owner}.{turned}.cumsum({method.segment(node.args[0])}).{turned}")
    if name == "flip" and (inner := _from_the_end(node)) is not None:
        yield Change(node, f"{bracketed(method, inner)}.cumsum{rest}")
    if name in ("index_put", "index_put_") and not any(k.arg == "accumulate" for k in node.keywords):
        yield Change(node, f"{owner}.{name}({rest[1:-1]}, accumulate=True)")
    if name in UNDOABLE and owner not in ("torch", "F"):
        yield Change(node, owner)
    if name in ("var", "std") and not any(k.arg in ("unbiased", "correction") for k in node.keywords):
        yield Change(node, f"{owner}.{name}({', '.join(filter(None, (rest[1:-1], 'unbiased=False')))})")
    if name == "size" and len(node.args) == 1 and owner in scope.tensors:
        yield Change(node, f"{owner}.sum({method.segment(node.args[0])}, keepdim=True)")  # a mask's ones, not its length
    if name in ("sum", "mean") and not node.args and not node.keywords:
        for dim in (0, 1, -1):
            yield Change(node, f"{owner}.{name}({dim})")
        kept = [number for number in scope.numbers if number.rpartition(".")[2] in ("dim", "axis")]
        for place in (*kept, -1, 1, 0):
            yield Change(node, f"{owner}.{name}({place}, keepdim=True)")
    if name in ("sum", "mean") and (node.args or node.keywords) and not any(k.arg == "keepdim" for k in node.keywords):
        yield Change(node, f"{owner}.{name}({rest[1:-1]}, keepdim=True)")


def keywords(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """An option that another call of backward or forward has, and this one lacks: `padding=ctx.padding`."""
    if not isinstance(node, ast.Call) or not node.keywords and len(node.args) < 2:
        return
    has = {k.arg for k in node.keywords}
    for option in scope.options:
        if option.partition("=")[0] not in has:
            yield Change(node, f"{method.segment(node)[:-1].rstrip().rstrip(',')}, {option})")


def axes(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The dimensions of a reduction: one more of them, or one less."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("sum", "mean", "amax", "amin")):
        return
    # `x.sum((0, 2))` and `torch.sum(x, (0, 2))`
    place = next((k.value for k in node.keywords if k.arg in ("dim", "axis")), node.args[-1] if node.args else None)
    try:
        given = ast.literal_eval(place) if place is not None else None
    except (ValueError, TypeError, SyntaxError):
        return
    dims = given if isinstance(given, (tuple, list)) else (given,)
    if not all(isinstance(d, int) and not isinstance(d, bool) for d in dims):
        return
    rank = max(scope.tensors.values(), default=0)
    for extra in range(rank):
        if extra not in dims and extra - rank not in dims:
            yield Change(place, str(tuple(sorted((*dims, extra)))), True)
    for left_out in dims if len(dims) > 1 else ():
        rest = tuple(d for d in dims if d != left_out)
        yield Change(place, str(rest if len(rest) > 1 else rest[0]), True)


def _from_the_end(node: ast.Call) -> ast.expr | None:
    """`x` of `x.flip(d).cumsum(d).flip(d)`."""
    for name in ("cumsum", "flip"):
        inner = node.func.value
        if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == name):
            return None
        node = inner
    return node.func.value


def comparisons(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = method.segment(node.left), method.segment(node.comparators[0])
        for symbol in COMPARISONS.get(type(node.ops[0]), ()):
            yield Change(node, f"{left} {symbol} {right}")


def _is_count(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _calls_by_name(node, "len") or isinstance(node.func, ast.Attribute) and node.func.attr in ("numel", "size")


def names(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.tensors:
        for name in scope.tensors:
            if name != node.id:
                yield Change(node, name)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name) and node.value.id in scope.tensors:
        # `h[t]` for `previous`, which is `h[t - 1]` or zeros.
        for name, rank in scope.tensors.items():
            if name != node.value.id and rank == scope.tensors[node.value.id] - 1:
                yield Change(node, name)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.numbers:
        for name in scope.numbers:
            if name != node.id:
                yield Change(node, name)
        yield Change(node, f"{node.id} - 1")  # of an unbiased variance, say
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        yield Change(node, f"{method.segment(node)} - 1")
        for name in (*scope.numbers, *(name for name, rank in scope.tensors.items() if not rank)):
            yield Change(node, name)
    if _is_count(node):
        yield Change(node, f"{method.segment(node)} - 1")
        for name in scope.tensors:
            yield Change(node, f"{name}.sum()")  # of a mask or of weights
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        text = method.segment(node)
        for group in (scope.tensors, scope.numbers):
            if text in group:
                for name in group:
                    if name != text:
                        yield Change(node, name)


def counts(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """None put in for an input that has no gradient, or a returned value taken out."""
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Tuple):
        yield Change(node.value, f"{method.segment(node.value)}, None", True)
        yield Change(node.value, f"{method.segment(node.value)}, None, None", True)
        yield Change(node.value, f"(None, *{method.segment(node.value)})", True)
        yield Change(node.value, f"(*{method.segment(node.value)}, None)", True)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield Change(node.value, f"{method.segment(node.value)}, None", True)
        yield Change(node.value, ", ".join(method.segment(e) for e in node.value.elts[:-1]), True)
        for position in range(len(node.value.elts)):
            parts = [method.segment(e) for e in node.value.elts]
            parts.insert(position, "None")
            yield Change(node.value, ", ".join(parts), True)
