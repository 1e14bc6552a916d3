"""One-step changes of a method's source that might put a gradient right, likeliest first. Text in, text out.

Each edit undoes one slip that people make: a sign, an operand, an axis, a mean for a sum, a transposition,
a factor, the order of returns, the wrong saved tensor. Whether it helps is for `mend` to find out.
"""

from __future__ import annotations

import ast
import itertools
import typing
from dataclasses import dataclass, field

from torchsleuth.checker.source import Method, own_nodes

SWAPS = {"sum": ("mean",), "mean": ("sum",), "cos": ("sin",), "sin": ("cos",), "gt": ("lt", "ge"), "lt": ("gt", "le"), "ge": ("le",),
         "le": ("ge",), "amax": ("sum",), "exp": ("log",), "log": ("exp",), "tanh": ("sigmoid",), "sigmoid": ("tanh",),
         "prod": ("sum",), "max": ("sum",), "min": ("sum",)}  # fmt: skip
UNDOABLE = frozenset("t transpose flip mT T permute abs neg sign conj roll square sqrt detach".split())
OPERATORS = {ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/", "@"), ast.Div: ("*",), ast.MatMult: ("*",)}
COMPARISONS = {ast.Gt: ("<", ">=", "<=", "=="), ast.Lt: (">", "<=", ">=", "=="), ast.GtE: ("<=", ">"), ast.LtE: (">=", "<"),
               ast.Eq: ("!=",), ast.NotEq: ("==",)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """Replace the text of `node` by `after`."""

    node: ast.AST
    after: str
    element: bool = False  # the node stands alone (a returned or assigned value): no parentheses are needed


@dataclass(frozen=True, slots=True)
class Scope:
    """What the method's names stood for when it ran: tensors by rank, sizes, numbers."""

    tensors: dict[str, int]  # expression -> number of dimensions
    sizes: dict[str, int]  # expression of a shape -> number of dimensions
    numbers: tuple[str, ...]
    donors: tuple[str, ...] = ()  # constant expressions found elsewhere in the Function
    shapes: dict[str, int] = field(default_factory=dict)  # of `tensors`, one of each shape


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
    families = dict.fromkeys((*SUGGESTED.get(relation, ()), *FAMILIES))
    for part in (likely, [node for node in nodes if id(node) not in near and id(node) not in doubtful]):
        for family, node in itertools.product(families, part):
            yield from family(method, scope, node)


def _places(tree: ast.AST) -> typing.Iterator[int]:
    """The nodes of a tree that have a place in the text: operators and contexts are shared by all trees."""
    return (id(node) for node in ast.walk(tree) if isinstance(node, (ast.expr, ast.stmt)))


def saved_changes(method: Method, names: typing.Sequence[str]) -> typing.Iterator[Change]:
    """Other things to save: for the arguments of `save_for_backward` and what is put on ctx."""
    for node in own_nodes(method.tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("save_for_backward", "save_for_forward"):
            targets = [a for a in node.args if not isinstance(a, ast.Starred)]
            for a, b in itertools.combinations(targets, 2):
                yield Change(node, _swapped(method, node, a, b))
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) for t in node.targets):
            targets = [node.value]
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
                yield Change(node.value, str(not node.value.value), True)
        for target in targets:
            for name in names:
                if method.segment(target) != name:
                    yield Change(target, name, True)
            yield from _constants(method, Scope({}, {}, ()), target)
            for inner in ast.walk(target):
                if inner is not target:
                    yield from _constants(method, Scope({}, {}, ()), inner)
                    if isinstance(inner, ast.Name):
                        for name in names:
                            if inner.id != name:
                                yield Change(inner, name)


def _swapped(method: Method, whole: ast.AST, a: ast.AST, b: ast.AST) -> str:
    """The text of `whole` with the texts of two nodes inside it exchanged."""
    text, first, second = method.segment(whole), method.segment(a), method.segment(b)
    start = _offset(method, whole)
    i, j = _offset(method, a) - start, _offset(method, b) - start
    return text[:i] + second + text[i + len(first) : j] + first + text[j + len(second) :]


def _offset(method: Method, node: ast.AST) -> int:
    return method.offsets(node)[0]


def _orders(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """Returned gradients, unpacked tensors and arguments in another order."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        for a, b in itertools.combinations(node.value.elts, 2):
            yield Change(node.value, _swapped(method, node.value, a, b), True)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
        elements = node.targets[0].elts
        for a, b in itertools.combinations(elements, 2):
            yield Change(node.targets[0], _swapped(method, node.targets[0], a, b), True)
    if isinstance(node, ast.Call) and len(node.args) in (2, 3):
        for a, b in itertools.combinations(node.args, 2):
            yield Change(node, _swapped(method, node, a, b))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.MatMult, ast.Div)):
        yield Change(node, _swapped(method, node, node.left, node.right))


def _constants(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if not isinstance(node, ast.Constant):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            for n in (0, 1, 2, -2, -1):
                if -n != node.operand.value:
                    yield Change(node, str(n), True)
        return
    value = node.value
    if isinstance(value, bool):
        yield Change(node, str(not value))
    elif isinstance(value, int):
        for n in (0, 1, 2, 3, -1, -2, value + 1, value - 1, value * 2):
            if n != value:
                yield Change(node, str(n))
    elif isinstance(value, float):
        for number in (value * 2, value / 2, 1.0, -value, value * 3, value / 3):
            if number != value:
                yield Change(node, repr(number))
        for name in scope.numbers:
            yield Change(node, name)


def _operators(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.BinOp):
        left, right = method.segment(node.left), method.segment(node.right)
        between = method.segment(node)
        start = _offset(method, node)
        i = _offset(method, node.left) - start + len(left)
        j = _offset(method, node.right) - start
        symbol = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}.get(type(node.op))
        for operator in OPERATORS.get(type(node.op), ()):
            if symbol and between[i:j].count(symbol) == 1:
                yield Change(node, between[:i] + between[i:j].replace(symbol, operator) + between[j:])
        yield Change(node, left)
        if not isinstance(node.op, (ast.Div, ast.Pow)):
            yield Change(node, right if not isinstance(node.op, ast.Sub) else f"-{right}")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield Change(node, method.segment(node.operand))


def _calls(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return
    name = node.func.attr
    owner = method.segment(node.func.value)
    rest = method.segment(node)[len(method.segment(node.func)) :]
    for other in SWAPS.get(name, ()):
        yield Change(node, f"{owner}.{other}{rest}")
    if name in UNDOABLE and owner not in ("torch", "F"):
        yield Change(node, owner)
    if name in ("var", "std") and not any(k.arg in ("unbiased", "correction") for k in node.keywords):
        yield Change(node, f"{owner}.{name}({', '.join(filter(None, (rest[1:-1], 'unbiased=False')))})")
    if name in ("sum", "mean") and not node.args and not node.keywords:
        for dim in (0, 1, -1):
            yield Change(node, f"{owner}.{name}({dim})")
    if name in ("sum", "mean") and (node.args or node.keywords) and not any(k.arg == "keepdim" for k in node.keywords):
        yield Change(node, f"{owner}.{name}({rest[1:-1]}, keepdim=True)")


def _comparisons(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = method.segment(node.left), method.segment(node.comparators[0])
        for symbol in COMPARISONS.get(type(node.ops[0]), ()):
            yield Change(node, f"{left} {symbol} {right}")


def _names(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.tensors:
        for name in scope.tensors:
            if name != node.id:
                yield Change(node, name)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        for name in (*scope.numbers, *(name for name, rank in scope.tensors.items() if not rank)):
            yield Change(node, name)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        text = method.segment(node)
        for group in (scope.tensors, scope.numbers):
            if text in group:
                for name in group:
                    if name != text:
                        yield Change(node, name)


def _elements(node: ast.AST) -> list[ast.expr]:
    """Expressions that stand for a whole gradient or intermediate: returned, or assigned to a name."""
    if isinstance(node, ast.Return) and node.value is not None:
        return list(node.value.elts) if isinstance(node.value, ast.Tuple) else [node.value]
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return [node.value]
    return []


def _formulas(node: ast.AST) -> list[ast.expr]:
    return [e for e in _elements(node) if not isinstance(e, (ast.Constant, ast.Attribute, ast.Subscript))]


def _listed(node: ast.AST) -> list[ast.expr]:
    """The elements of a list or tuple that is put together: `torch.cat([a * b, c])`."""
    if not isinstance(node, (ast.List, ast.Tuple)) or not isinstance(node.ctx, ast.Load):
        return []
    return [e for e in node.elts if isinstance(e, (ast.BinOp, ast.Name, ast.Call))]


def _signs(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    for element in (*_formulas(node), *_listed(node)):
        yield Change(element, f"-{_bracketed(method, element)}", True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.MatMult, ast.Div)):
        yield Change(node, f"-{method.segment(node)}")


def _factors(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A factor put in: a tensor, a size, a number."""
    targets = [(e, True) for e in _formulas(node)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        targets += [(node.left, False), (node.right, False)]
    targets += [(e, False) for e in _listed(node)]
    for element, alone in targets:
        text = _bracketed(method, element)
        for name in scope.tensors:
            yield Change(element, f"{text} * {name}", alone)
            if isinstance(element, (ast.BinOp, ast.Name)):
                # The derivatives of sigmoid and tanh, by their results.
                yield Change(element, f"{text} * (1 - {name})", alone)
                yield Change(element, f"{text} * (1 - {name} * {name})", alone)
        for name in scope.numbers:
            yield Change(element, f"{text} * {name}", alone)
            yield Change(element, f"{text} / {name}", alone)
        for number, name in itertools.product(scope.numbers[:3], scope.tensors):
            yield Change(element, f"{number} * {name} * {text}", alone)
        if alone:
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


def _projections(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The sum that a normalisation (softmax, layer norm, division by a norm) subtracts from a gradient."""
    targets = [(e, True) for e in _formulas(node) if isinstance(e, (ast.BinOp, ast.Name))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        targets += [(side, False) for side in (node.left, node.right) if isinstance(side, ast.Name)]
    for element, alone in targets:
        text = _bracketed(method, element)
        yield Change(element, f"{text} - {text}.mean(-1, keepdim=True)", alone)
        for name, rank in scope.tensors.items():
            if rank:
                yield Change(element, f"{text} - ({name} * {text}).sum(-1, keepdim=True)", alone)
                yield Change(element, f"{text} - {name} * ({name} * {text}).sum(-1, keepdim=True)", alone)
                yield Change(element, f"{text} - {name} * ({name} * {text}).mean(-1, keepdim=True)", alone)


def _unused(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """The gradient of an output that backward never looks at, put in as a term."""
    read = {part.id for part in own_nodes(method.tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    for argument in method.tree.args.args[1:]:
        if argument.arg not in read and argument.arg in scope.tensors:
            for element in _formulas(node):
                yield Change(element, f"{argument.arg} + {method.segment(element)}", True)


def _terms(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A term put in: the gradient of another output, a state passed on."""
    for element in _formulas(node):
        if isinstance(element, (ast.BinOp, ast.Call)):
            for name in scope.tensors:
                yield Change(element, f"{name} + {method.segment(element)}", True)
                yield Change(element, f"{method.segment(element)} - {name}", True)


def _shapes(scope: Scope) -> dict[str, int]:
    return {**scope.sizes, **{f"{name}.shape": rank for name, rank in scope.shapes.items()}}


def _wrapped(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A whole gradient transposed, summed, flipped or reshaped; an operand of a product transposed."""
    for element in _formulas(node) if _is_returned(method, node) else ():
        text = _bracketed(method, element)
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
            yield Change(operand, f"{_bracketed(method, operand)}.transpose(-1, -2)")


def _counts(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """None put in for an input that has no gradient, or a returned value taken out."""
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Tuple):
        yield Change(node.value, f"{method.segment(node.value)}, None", True)
        yield Change(node.value, f"{method.segment(node.value)}, None, None", True)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield Change(node.value, f"{method.segment(node.value)}, None", True)
        yield Change(node.value, ", ".join(method.segment(e) for e in node.value.elts[:-1]), True)
        for position in range(len(node.value.elts)):
            parts = [method.segment(e) for e in node.value.elts]
            parts.insert(position, "None")
            yield Change(node.value, ", ".join(parts), True)


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


def _bracketed(method: Method, node: ast.expr) -> str:
    text = method.segment(node)
    return text if isinstance(node, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)) else f"({text})"


def applied(method: Method, change: Change) -> str:
    """The whole file's text with the change made; brackets where the new text needs them."""
    start, end = method.offsets(change.node)
    return method.text[:start] + replacement(change, method) + method.text[end:]


def replacement(change: Change, method: Method) -> str:
    if change.element or _closed(change.after):
        return change.after
    start, end = method.offsets(change.node)
    bracketed = method.text[start - 1 : start] == "(" and method.text[end : end + 1] == ")" and isinstance(change.node, (ast.BinOp, ast.UnaryOp, ast.Compare))
    return change.after if bracketed else f"({change.after})"


def _closed(text: str) -> bool:
    """Whether a text is one atom or call chain, which can stand anywhere."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return True
    return isinstance(tree, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant))


def _insertions(method: Method, scope: Scope, node: ast.AST) -> typing.Iterator[Change]:
    """A factor, a term or a reduction put in at an operand deep inside a formula."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.Call):
        operands = [a for a in node.args if not isinstance(a, (ast.Constant, ast.Starred, ast.UnaryOp))]
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.BinOp, ast.Name)):
            operands.append(node.func.value)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        operands = [node.operand]
    for operand in operands:
        if isinstance(operand, ast.Name) and operand.id not in scope.tensors:
            continue
        text = _bracketed(method, operand)
        yield Change(operand, f"2 * {text}")
        yield Change(operand, f"{text} / 2")
        for name in (*scope.tensors, *scope.numbers):
            yield Change(operand, f"{text} * {name}")
        for name in (*scope.tensors, *scope.numbers):
            yield Change(operand, f"{text} - {name}")
            yield Change(operand, f"{text} / {name}")
            yield Change(operand, f"{text} + {name}")
            yield Change(operand, f"{name} - {text}")
        yield Change(operand, f"1 - {text}")
        yield Change(operand, f"1 + {text}")
        for name in scope.tensors:
            yield Change(operand, f"{text} * (1 - {name})")
        for number in scope.donors:
            if number != text:
                yield Change(operand, f"{text} * {number}")
                yield Change(operand, f"{text} / {number}")
        if not isinstance(operand, ast.Constant):
            for reduction in ("sum", "mean"):
                for dim in (-1, 0, 1):
                    yield Change(operand, f"{text}.{reduction}({dim}, keepdim=True)")


FAMILIES = (_unused, _orders, _operators, _constants, _calls, _comparisons, _names, _signs, _factors, _counts, _wrapped, _insertions, _projections, _terms)
SUGGESTED = {
    "factor": (_operators, _orders, _signs, _calls, _constants, _factors),
    "other-input": (_orders, _names),
    "transposed": (_calls, _orders, _wrapped),
    "shape": (_orders, _calls, _constants, _wrapped),
    "count": (_counts, _orders),
    "no-grad-output": (_factors, _names),
    "tensor-factor": (_factors, _names, _operators),
    "other-tensor": (_orders, _names),
    "condition": (_comparisons, _constants, _orders),
}
