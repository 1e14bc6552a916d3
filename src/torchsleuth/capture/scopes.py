"""What the syntax of a function or a class says about one name: its bindings, its parameter and default, what is stored in it."""

from __future__ import annotations

import ast
import functools
import typing

from torchsleuth import source

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Selector = str | int | None  # an attribute or key, a position, or None for "some element"


def is_arithmetic(node: ast.AST) -> bool:
    """`len(x)`, `x.size(1)`, `x.shape[0]`, and `x.shape` for one of its sizes."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("len", "int", "size", "numel")
    node = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def size_asked(node: ast.AST, axis: int | None) -> tuple[ast.AST, int] | None:
    """The tensor and the axis of `x.size(1)`, `x.shape[1]`, `len(x)`, and of `x.shape` with a known position."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len" and len(node.args) == 1:
        return node.args[0], 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and len(node.args) <= 1:
        place = key_of(node.args[0])[0] if node.args else axis
        return (node.func.value, place) if type(place) is int else None
    if isinstance(node, ast.Subscript):
        place = key_of(node.slice)[0]
        node, axis = node.value, place if type(place) is int else None
    return (node.value, axis) if isinstance(node, ast.Attribute) and node.attr == "shape" and axis is not None else None


def is_class_name(node: ast.AST) -> bool:
    """`BertConfig(…)`: an object, no number."""
    name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
    return name[:1].isupper() and not name.isupper()


def constant_value(node: ast.AST) -> int | None:
    """The value of arithmetic on integer constants."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp):
        left, right = constant_value(node.left), constant_value(node.right)
        operation = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__}.get(type(node.op))
        if left is None or right is None or operation is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
            return None
        return operation(left, right)
    return None


def signed_constant(node: ast.AST) -> int | None:
    """The value of a number that is written out, -1 included."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


# Which argument of a layer is the size of its weight at an axis: by position, and by name.
_LINEAR = {0: (1, "out_features"), 1: (0, "in_features")}
_CONV = {0: (1, "out_channels"), 1: (0, "in_channels")}
_TABLE = {0: (0, "num_embeddings"), 1: (1, "embedding_dim")}
_WEIGHTS = {
    "Linear": _LINEAR, "Conv1d": _CONV, "Conv2d": _CONV, "Conv3d": _CONV, "Embedding": _TABLE, "EmbeddingBag": _TABLE,
    **{f"ConvTranspose{n}d": {0: (0, "in_channels"), 1: (1, "out_channels")} for n in (1, 2, 3)},
}  # fmt: skip


def arguments_for(call: ast.Call, axis: int | None) -> list[ast.AST]:
    """The arguments of a call that may be the size at this axis of what it makes: the one of a layer that is it, or all."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    plain = not any(isinstance(a, ast.Starred) for a in call.args) and not any(k.arg in (None, "groups") for k in call.keywords)
    if plain and axis is not None and axis in _WEIGHTS.get(name, ()):
        position, word = _WEIGHTS[name][axis]
        given = next((k.value for k in call.keywords if k.arg == word), call.args[position] if position < len(call.args) else None)
        if given is not None:
            return [given]
    sizes = _sizes_written(call, name) if plain and axis is not None else []
    if axis is not None and axis < len(sizes):
        return [sizes[axis]]
    if name in _OF_DATA:  # as long as the data: a number in it is no size
        given = call.args[0] if call.args else None
        return slice_lengths(given) if isinstance(given, ast.Subscript) and axis in (0, None) else []
    every = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg not in _NO_SIZES)]
    return [part for argument in every for part in (argument.elts if isinstance(argument, (ast.Tuple, ast.List)) else [argument])]


_NO_SIZES = frozenset({"dtype", "device", "requires_grad", "bias", "generator", "layout", "pin_memory", "out"})
_OF_DATA = frozenset({"tensor", "as_tensor", "asarray", "array", "LongTensor", "FloatTensor", "IntTensor", "stack", "cat"})
SIZED = frozenset({"rand", "randn", "zeros", "ones", "empty", "new_zeros", "new_ones", "new_empty"})  # called with sizes alone


def _sizes_written(call: ast.Call, name: str) -> list[ast.expr]:
    """The sizes that a constructor of tensors was given, in their order: `torch.rand(n, 3)`, `torch.full((n, 3), 0)`."""
    tuples = [argument for argument in call.args if isinstance(argument, (ast.Tuple, ast.List))]
    if name in (*SIZED, "full", "new_full", "randint") and len(tuples) == 1 and not any(isinstance(size, ast.Starred) for size in tuples[0].elts):
        return tuples[0].elts
    return call.args if name in SIZED and not tuples and len(call.args) > 1 else []


def slice_lengths(node: ast.Subscript) -> list[ast.AST]:
    """The numbers that a slice says are its length: the `n` of `x[i : i + n]`, `x[:n]` and `x[-n:]`, where no two slices say different ones."""
    found: list[ast.AST] = []
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if not isinstance(part, ast.Slice) or part.step is not None:
            continue
        lower, upper = part.lower, part.upper
        if lower is None and upper is not None and not isinstance(upper, ast.UnaryOp):
            found.append(upper)
        elif upper is None and isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub):
            found.append(lower.operand)
        elif lower is not None and isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
            start = ast.dump(lower)
            terms = _summands(upper)
            rest = [term for term in terms if ast.dump(term) not in {ast.dump(one) for one in _summands(lower)}]
            if len(rest) == 1 and (start in map(ast.dump, terms) or len(terms) == len(_summands(lower)) + 1):
                found += rest
    return found[:1] if len({ast.dump(one) for one in found}) == 1 else []  # once, or the same: `x[:, :size, :size]`


def _summands(node: ast.AST) -> list[ast.AST]:
    return [*_summands(node.left), *_summands(node.right)] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) else [node]


def key_of(node: ast.AST) -> tuple[Selector, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
        return (node.value,)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return (-node.operand.value,)
    return (None,)


def loosened(selectors: tuple[Selector, ...]) -> tuple[Selector, ...]:
    """A slice, a reversal or a sum of lists moves positions: some element, then."""
    return (None, *selectors[1:]) if selectors and type(selectors[0]) is int else selectors


def position_in(target: ast.AST, name: str) -> tuple[Selector, ...] | None:
    """Where a name stands in a target: () for the whole, (1,) for `a, name`."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, (ast.Tuple, ast.List)):
        if any(isinstance(element, ast.Starred) for element in target.elts):
            return None
        for position, element in enumerate(target.elts):
            inner = position_in(element, name)
            if inner is not None:
                return (position, *inner)
    return None


def comprehensions_around(scope: ast.AST, node: ast.AST) -> list[typing.Any]:
    """The comprehensions around an expression, innermost first."""
    return [c for c in ast.walk(scope) if isinstance(c, COMPREHENSIONS) and any(inner is node for inner in ast.walk(c))][::-1]


def lambda_around(scope: ast.AST, node: ast.AST, name: str) -> ast.Lambda | None:
    """The lambda whose parameter a name is."""
    around = [c for c in ast.walk(scope) if isinstance(c, ast.Lambda) and c is not scope and parameter_of(c, name) is not None and any(inner is node for inner in ast.walk(c.body))]
    return around[-1] if around else None


@functools.lru_cache(maxsize=1024)
def bound_to(scope: ast.AST, name: str) -> tuple[tuple[ast.AST, tuple[Selector, ...]], ...]:
    """What a name is bound to in a function: (expression, where in its value). An unknown kind of binding counts, too."""
    found: list[tuple[ast.AST, tuple[Selector, ...]]] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                continue
            targets: list[tuple[ast.AST, ast.AST, tuple[Selector, ...]]] = []
            if isinstance(child, ast.Assign):
                targets = [(target, child.value, ()) for target in child.targets]
            elif isinstance(child, (ast.AnnAssign, ast.NamedExpr)) and child.value is not None:
                targets = [(child.target, child.value, ())]
            elif isinstance(child, ast.AugAssign):
                targets = [(child.target, child, ())]  # counted: nowhere to be found
            elif isinstance(child, (ast.For, ast.AsyncFor)):
                targets = [(child.target, child.iter, (None,))]
            for target, value, first in targets:
                where = position_in(target, name)
                if where is not None:
                    found.append((value, (*first, *where)))
            visit(child)

    visit(scope)
    return tuple(found)


def parameter_of(scope: ast.AST, name: str) -> ast.arg | None:
    if not isinstance(scope, FUNCTIONS):
        return None
    arguments = scope.args
    every = (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg)
    return next((a for a in every if a is not None and a.arg == name), None)


def first_parameter(scope: ast.AST) -> str:
    return scope.args.args[0].arg if isinstance(scope, FUNCTIONS) and scope.args.args else ""


def argument_for(call: ast.Call, scope: ast.AST, bound: bool, name: str) -> tuple[ast.AST | None, bool]:
    """What a call gives for a parameter; and, for None, whether it surely gives nothing. `bound`: `self` is left out."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value, True
    names = positional_names(scope, bound)
    if name in names:
        position = names.index(name)
        before = call.args[: position + 1]
        if any(isinstance(argument, ast.Starred) for argument in before):
            return None, False
        if position < len(call.args):
            return call.args[position], True
    return None, not any(keyword.arg is None for keyword in call.keywords) and not any(isinstance(a, ast.Starred) for a in call.args)


def positional_names(scope: ast.AST, bound: bool) -> list[str]:
    names = [a.arg for a in (*scope.args.posonlyargs, *scope.args.args)]  # type: ignore[attr-defined]
    return names[1:] if bound else names


def default_of(scope: ast.AST, name: str) -> ast.AST | None:
    arguments = scope.args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in positional][len(positional) - len(arguments.defaults) :], arguments.defaults))
    defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None})
    return defaults.get(name)


def reaching(scope: ast.AST, node: ast.AST) -> ast.expr | None:
    """What a plain assignment before a use, in the same block or one around it, has given the name: no other binding can come in between."""
    name, way = getattr(node, "id", ""), _way_to(scope, node)
    for outer, inner in zip(reversed(way[:-1]), reversed(way[1:])):
        block = next((b for b in (getattr(outer, field, None) for field in ("body", "orelse", "finalbody")) if isinstance(b, list) and any(s is inner for s in b)), None)
        if block is None:
            continue
        before = block[: next(k for k, statement in enumerate(block) if statement is inner)]
        for statement in reversed(before):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == name:
                return statement.value
            if _may_bind(statement, name):
                return None
        if isinstance(outer, (ast.For, ast.While, ast.AsyncFor)) and _may_bind(outer, name):
            return None  # by a round before
    return None


def _may_bind(statement: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load) or isinstance(n, ast.ExceptHandler) and n.name == name for n in ast.walk(statement))


def _way_to(scope: ast.AST, node: ast.AST) -> list[ast.AST]:
    """The nodes around one, from the scope inwards."""
    for child in ast.iter_child_nodes(scope):
        if child is node:
            return [scope, child]
        way = _way_to(child, node)
        if way:
            return [scope, *way]
    return []


def enclosing(filename: str, scope: ast.AST) -> ast.AST | None:
    """The function around a function, or the module."""
    tree = source.tree_of(filename)
    if tree is None or scope is tree:
        return None
    found: ast.AST = tree
    for candidate in ast.walk(tree):
        if isinstance(candidate, FUNCTIONS) and candidate is not scope and any(inner is scope for inner in ast.walk(candidate)):
            found = candidate
    return found


@functools.lru_cache(maxsize=1024)
def stores_into(scope: ast.AST, name: str, selectors: tuple[Selector, ...]) -> tuple[tuple[ast.AST, tuple[Selector, ...]], ...]:
    """What is put into an object, a table or a list after it was made: `cfg.heads = 7`, `cfg["heads"] = 7`, `cfg.update(heads=7)`,
    `rows.append(row)`. `name` is a variable, or a path: `self.rows`."""
    found: list[tuple[ast.AST, tuple[Selector, ...]]] = []
    key, rest = selectors[0], selectors[1:]
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                path = _path(target, name)
                if path and len(path) <= len(selectors) and all(map(_may_be, path, selectors)):
                    found.append((node.value, selectors[len(path) :]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_path(node.func.value, name):
            if node.func.attr == "update":
                found += [(keyword.value, rest) for keyword in node.keywords if keyword.arg == key]
                found += [(argument, selectors) for argument in node.args]
            elif isinstance(key, str) or not node.args:
                continue
            elif node.func.attr in _ADDS and len(node.args) > _ADDS[node.func.attr]:
                found.append((node.args[_ADDS[node.func.attr]], rest))
            elif node.func.attr == "extend":
                found.append((node.args[0], (None, *rest)))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and len(node.args) == 3:
            if getattr(node.args[0], "id", "") == name and isinstance(node.args[1], ast.Constant) and node.args[1].value == key:
                found.append((node.args[2], rest))
    return tuple(found)


_ADDS = {"append": 0, "add": 0, "appendleft": 0, "insert": 1, "setdefault": 1}  # which argument becomes an element


def _may_be(stored: Selector, asked: Selector) -> bool:
    """Whether what is stored under one key may be what is asked for: `table[word] = …` may be any element, but no known entry."""
    return stored == asked or not isinstance(asked, str) and (stored is None or asked is None)


def _is_path(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name or "." in name and isinstance(node, ast.Attribute) and ast.unparse(node) == name


def _path(target: ast.AST, name: str) -> tuple[Selector, ...]:
    """`("model", "heads")` for `cfg["model"].heads`, seen from `cfg`."""
    path: tuple[Selector, ...] = ()
    while isinstance(target, (ast.Attribute, ast.Subscript)) and not _is_path(target, name):
        path = ((target.attr,) if isinstance(target, ast.Attribute) else key_of(target.slice)) + path
        target = target.value
    return path if _is_path(target, name) else ()


def stored_in(statement: ast.AST, owner: str, name: str) -> typing.Iterator[tuple[ast.AST, tuple[Selector, ...]]]:
    """`self.name = value`, alone or among several targets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) and statement.value else []
    for target in targets:
        whole = isinstance(target, ast.Attribute)
        parts = [target] if whole else target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        for position, part in enumerate(parts):
            if isinstance(part, ast.Attribute) and part.attr == name and getattr(part.value, "id", "") == owner:
                yield statement.value, () if whole else (position,)  # type: ignore[attr-defined, misc]


def class_of(filename: str, method: ast.AST) -> ast.ClassDef | None:
    tree = source.tree_of(filename)
    return next((c for c in ast.walk(tree) if isinstance(c, ast.ClassDef) and method in c.body), None) if tree is not None else None


def class_level(owner: ast.ClassDef, name: str) -> ast.AST | None:
    for item in owner.body:
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) and item.value else []
        if any(getattr(target, "id", "") == name for target in targets):
            return item.value  # type: ignore[attr-defined]
    return None


def option_default(tree: ast.Module | None, name: str) -> ast.AST | None:
    """The default of `parser.add_argument("--name", default=…)`."""
    for call in ast.walk(tree) if tree is not None else ():
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            dest = next((k.value.value for k in call.keywords if k.arg == "dest" and isinstance(k.value, ast.Constant)), None)
            if dest == name or dest is None and any(flag.lstrip("-").replace("-", "_") == name for flag in flags):
                return next((k.value for k in call.keywords if k.arg == "default"), None)
    return None
