"""How the file of a Function calls it: the values of `apply`'s arguments, as far as they can be read without running the program.

A demonstration under `if __name__ == "__main__"`, a test, a module's forward: their expressions are read and evaluated here, and
nothing of the user's is called. Only literals, arithmetic on them, the factories of torch (`torch.randn(3, 4)`), attributes that
`__init__` sets and defaults of parameters have a value; of anything else only the kind is known, or nothing.
"""

from __future__ import annotations

import ast
import functools
import operator
import sys
import types
import typing

import torch

from torchsleuth.checker.source import text_of


class Unknown(typing.NamedTuple):
    """A value that cannot be had by reading; `trained`: it is a parameter of a module, or a tensor made with requires_grad=True;
    `constant`: it is a buffer, or a parameter made with requires_grad=False."""

    tensor: bool = False
    trained: bool = False
    rank: int = -1
    constant: bool = False


class Call(typing.NamedTuple):
    """One call of `apply`: its line, and for every argument its value or an `Unknown`."""

    line: int
    values: tuple

    @property
    def complete(self) -> bool:
        return not any(isinstance(value, Unknown) for value in self.values)


NOTHING = Unknown()
LARGEST = 10**6  # elements of a tensor that is made here
FACTORIES = frozenset("randn rand zeros ones full arange tensor linspace randint eye empty randperm as_tensor logspace".split())
SHAPING = frozenset(
    "float double half long int bool to requires_grad_ t abs clamp unsqueeze squeeze view reshape transpose permute expand repeat contiguous "
    "detach clone softmax sigmoid exp sqrt square sum mean numel size dim item tolist flatten triu tril diag round floor normal_ uniform_".split()
)
BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.LShift: operator.lshift,
}  # fmt: skip
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
BUILTINS = {"float": float, "int": int, "bool": bool, "tuple": tuple, "list": list, "len": len, "range": range, "max": max, "min": min, "abs": abs}


def calls_of(function: type, seed: int = 0) -> list[Call]:
    """The calls of a Function's `apply` in the file that defines it, those that are known best first."""
    module = sys.modules.get(function.__module__)
    code = getattr(function.forward, "__code__", None)
    tree = _tree(text_of(code.co_filename)) if code is not None else None
    if tree is None:
        return []
    names = _aliases(tree, function.__name__)
    reader = Reader(vars(module) if module is not None else {}, seed, tree)
    found = []
    for call, around in _with_surroundings(tree):
        arguments = _arguments(call, function.__name__, names)
        if arguments is not None and not any(isinstance(a, ast.Starred) for a in arguments):
            with torch.no_grad():
                found.append(Call(call.lineno, tuple(reader.value(a, around) for a in arguments)))
    return sorted(found, key=lambda c: sum(isinstance(v, Unknown) for v in c.values))


SECOND_DERIVATIVES = frozenset("gradgradcheck hessian hvp vhp jacrev jacfwd".split())


def takes_second_derivatives(function: type) -> bool:
    """Whether the file of a Function differentiates a gradient: `create_graph=True`, a Hessian, gradgradcheck."""
    code = getattr(function.forward, "__code__", None)
    tree = _tree(text_of(code.co_filename)) if code is not None else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg == "create_graph" and not (isinstance(node.value, ast.Constant) and not node.value.value):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and (node.id if isinstance(node, ast.Name) else node.attr) in SECOND_DERIVATIVES:
            return True
    return False


@functools.lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _aliases(tree: ast.Module, name: str) -> frozenset[str]:
    """`op` of `op = MyFunction.apply`."""
    found = [t.id for n in tree.body if isinstance(n, ast.Assign) and _is_apply(n.value, name) for t in n.targets if isinstance(t, ast.Name)]
    return frozenset(found)


def _is_apply(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "apply" and isinstance(node.value, ast.Name) and node.value.id == name


def _arguments(call: ast.Call, name: str, aliases: frozenset[str]) -> list[ast.expr] | None:
    """The arguments of `F.apply(...)`, of an alias of it, or of `gradcheck(F.apply, (...))`."""
    if _is_apply(call.func, name) or isinstance(call.func, ast.Name) and call.func.id in aliases:
        return None if call.keywords else call.args
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called in ("gradcheck", "gradgradcheck") and len(call.args) > 1:
        first, inputs = call.args[:2]
        if _is_apply(first, name) or isinstance(first, ast.Name) and first.id in aliases:
            return list(inputs.elts) if isinstance(inputs, (ast.Tuple, ast.List)) else [inputs]
    return None


class Around(typing.NamedTuple):
    """What stands around an expression: the bodies it is in, outermost first, and its class."""

    scopes: tuple[ast.AST, ...]
    owner: ast.ClassDef | None


def _with_surroundings(tree: ast.Module) -> typing.Iterator[tuple[ast.Call, Around]]:
    pending: list[tuple[ast.AST, Around]] = [(tree, Around((tree,), None))]
    while pending:
        node, around = pending.pop(0)
        if isinstance(node, ast.Call):
            yield node, around
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            around = Around((*around.scopes, node), around.owner)
        elif isinstance(node, ast.ClassDef):
            around = Around(around.scopes, node)
        pending += [(child, around) for child in ast.iter_child_nodes(node)]


class Reader:
    """Evaluates expressions of a file that has been imported, from what is written around them."""

    def __init__(self, namespace: dict[str, typing.Any], seed: int, tree: ast.Module):
        self.namespace = namespace
        self.tree = tree
        self.generator = torch.Generator().manual_seed(seed)
        self.pending: set[int] = set()  # nodes being evaluated: a name may be defined by itself
        self.known: dict[tuple[int, int], typing.Any] = {}  # one object per expression: a name that is used twice is one tensor

    def value(self, node: ast.expr, around: Around) -> typing.Any:
        key = (id(node), id(around.owner))
        if key in self.known:
            return self.known[key]
        if id(node) in self.pending or len(self.pending) > 60:
            return NOTHING
        self.pending.add(id(node))
        try:
            found = self._value(node, around)
        except Exception:
            found = NOTHING
        finally:
            self.pending.discard(id(node))
        if isinstance(found, torch.Tensor) and found.numel() > LARGEST:
            found = Unknown(True, found.requires_grad, found.ndim)
        self.known[key] = found
        return found

    def _value(self, node: ast.expr, around: Around) -> typing.Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._named(node, around)
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self.value(e, around) for e in node.elts]
            return NOTHING if any(isinstance(p, Unknown) for p in parts) else tuple(parts) if isinstance(node, ast.Tuple) else parts
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            operand = self.value(node.operand, around)
            return operand if isinstance(operand, Unknown) else _recorded(UNARY[type(node.op)](operand), operand)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            left, right = self.value(node.left, around), self.value(node.right, around)
            if isinstance(left, Unknown) or isinstance(right, Unknown):
                return Unknown(True) if any(isinstance(v, torch.Tensor) or isinstance(v, Unknown) and v.tensor for v in (left, right)) else NOTHING
            if isinstance(node.op, (ast.Pow, ast.LShift)) and isinstance(right, (int, float)) and abs(right) > 64:
                return NOTHING
            return _recorded(BINARY[type(node.op)](left, right), left, right)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, around)
        if isinstance(node, ast.Subscript):
            base, place = self.value(node.value, around), self.value(node.slice, around) if not isinstance(node.slice, ast.Slice) else NOTHING
            if isinstance(base, Unknown) or isinstance(place, Unknown):
                return Unknown(True) if isinstance(base, torch.Tensor) or isinstance(base, Unknown) and base.tensor else NOTHING
            return _recorded(base[place], base)
        return self._called(node, around) if isinstance(node, ast.Call) else NOTHING

    # -- names --------------------------------------------------------------------------------------

    def _named(self, node: ast.Name, around: Around) -> typing.Any:
        for depth in range(len(around.scopes) - 1, -1, -1):
            scope = around.scopes[depth]
            inside = Around(around.scopes[: depth + 1], around.owner)
            bound = _bindings(scope, node.id, node.lineno)
            if bound:
                # The last binding before the use; one of several branches is as good as another.
                found = self._bound(bound[-1], node.id, inside)
                return _requiring_grad(found) if _asks_for_grad(scope, node.id, node.lineno) else found
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = _parameter(scope, node.id)
                if found is not None:
                    handed = self._handed(scope, node.id) if depth == 1 else NOTHING
                    return handed if handed is not NOTHING else self.value(found, inside) if isinstance(found, ast.expr) else _of_annotation(found)
        value = self.namespace.get(node.id, BUILTINS.get(node.id, NOTHING))
        return value if isinstance(value, (bool, int, float, str, tuple, torch.Tensor, torch.dtype, types.FunctionType, type(None))) else NOTHING

    def _handed(self, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str) -> typing.Any:
        """What the file hands over for a parameter of a helper function, in the call that hands over the most."""
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        calls = [
            (dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords}, around)
            for call, around in _with_surroundings(self.tree)
            if isinstance(call.func, ast.Name) and call.func.id == function.name and not any(isinstance(a, ast.Starred) for a in call.args)
        ]
        given, around = max(calls, key=lambda c: len(c[0]), default=({}, None))
        return self.value(given[parameter], around) if parameter in given else NOTHING

    def _bound(self, found: tuple[ast.expr, ast.expr], name: str, around: Around) -> typing.Any:
        target, value = found
        if isinstance(target, ast.Name):
            return self.value(value, around)
        position = next(i for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id == name)
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            return self.value(value.elts[position], around)
        whole = self.value(value, around)
        return NOTHING if isinstance(whole, Unknown) or len(whole) != len(target.elts) else whole[position]

    def _attribute(self, node: ast.Attribute, around: Around) -> typing.Any:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and around.owner is not None:
            return self._own_attribute(node.attr, around.owner)
        path = _path(node)
        if path[:1] == ("torch",) and len(path) == 2 and isinstance(getattr(torch, path[1], None), torch.dtype):
            return getattr(torch, path[1])
        base = self.value(node.value, around)
        if isinstance(base, torch.Tensor) and node.attr in ("shape", "T", "mT", "dtype", "ndim"):
            return getattr(base, node.attr)
        return Unknown(True) if isinstance(base, Unknown) and base.tensor and node.attr in ("T", "mT", "data") else NOTHING

    def _own_attribute(self, name: str, owner: ast.ClassDef) -> typing.Any:
        """What `__init__` sets `self.name` to, or the class itself."""
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                inside = Around((method,), owner)
                for statement in ast.walk(method):
                    if isinstance(statement, ast.Assign) and any(_path(t) == ("self", name) for t in statement.targets):
                        return self.value(statement.value, inside)
                    if isinstance(statement, ast.Call) and _path(statement.func) in (("self", "register_buffer"), ("self", "register_parameter")):
                        if len(statement.args) > 1 and isinstance(statement.args[0], ast.Constant) and statement.args[0].value == name:
                            found = self.value(statement.args[1], inside)
                            if isinstance(found, Unknown):
                                return Unknown(True, found.trained, found.rank, constant=_path(statement.func)[-1] == "register_buffer" or found.constant)
                            return found
            if isinstance(method, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in method.targets):
                return self.value(method.value, Around((), owner))
            if isinstance(method, ast.AnnAssign) and isinstance(method.target, ast.Name) and method.target.id == name and method.value is not None:
                return self.value(method.value, Around((), owner))
        # A layer of torch's own, as `nn.Linear`, has these as parameters.
        return Unknown(True, True) if name in ("weight", "bias") and owner.bases else NOTHING

    # -- calls --------------------------------------------------------------------------------------

    def _called(self, node: ast.Call, around: Around) -> typing.Any:
        path = _path(node.func)
        keywords = {k.arg: self.value(k.value, around) for k in node.keywords if k.arg is not None}
        arguments = [self.value(a, around) for a in node.args if not isinstance(a, ast.Starred)]
        known = len(arguments) == len(node.args) and not any(isinstance(v, Unknown) for v in (*arguments, *keywords.values()))
        if path[-1:] == ("Parameter",):
            inner = arguments[0] if arguments else NOTHING
            trained = keywords.get("requires_grad", True) is not False
            return inner.detach().clone().requires_grad_(trained) if isinstance(inner, torch.Tensor) else Unknown(True, trained, getattr(inner, "rank", -1), constant=not trained)
        if path[:1] == ("torch",) and len(path) == 2:
            return self._made(path[1], arguments, keywords, known, node)
        if len(path) == 1 and path[0] in BUILTINS and known:
            return BUILTINS[path[0]](*arguments)
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, around)
            if isinstance(base, torch.Tensor) and node.func.attr in SHAPING and known:
                return self._method(base, node.func.attr, arguments, keywords)
            if isinstance(base, torch.Tensor) or isinstance(base, Unknown) and base.tensor:
                return Unknown(node.func.attr not in ("size", "item", "numel", "dim", "tolist"), getattr(base, "trained", False) or getattr(base, "requires_grad", False))
        return NOTHING

    def _method(self, base: torch.Tensor, name: str, arguments: list, keywords: dict) -> typing.Any:
        """A method of a tensor, on a copy; what comes of a tensor that requires grad does too."""
        drawn = {"generator": self.generator} if name in ("normal_", "uniform_") else {}
        result = getattr(base.detach().clone(), name)(*arguments, **keywords, **drawn)
        if name == "requires_grad_" or not isinstance(result, torch.Tensor):
            return result
        return result.requires_grad_(base.requires_grad and name != "detach") if result.is_floating_point() else result

    def _made(self, name: str, arguments: list, keywords: dict, known: bool, node: ast.Call) -> typing.Any:
        trained = keywords.get("requires_grad") is True
        if name not in FACTORIES:
            return Unknown(hasattr(torch, name) and name not in ("manual_seed", "device", "compile"), trained)
        if not known or "device" in keywords:
            rank = len(arguments) if name in ("randn", "rand", "zeros", "ones", "empty") and len(arguments) == len(node.args) else -1
            return Unknown(True, trained, rank)
        sizes = [n for a in arguments for n in (a if isinstance(a, (tuple, list)) else (a,)) if isinstance(n, int)]
        if name not in ("tensor", "as_tensor") and _count(sizes) > LARGEST:
            return Unknown(True, trained)
        drawn = {"generator": self.generator} if name in ("randn", "rand", "randint", "randperm") else {}
        name = "randn" if name == "empty" else name
        return getattr(torch, name)(*arguments, **{**keywords, **drawn, **({"generator": self.generator} if name == "randn" else {})})


def _count(sizes: list[int]) -> int:
    out = 1
    for n in sizes:
        out *= max(abs(n), 1)
    return out


def _path(node: ast.AST) -> tuple[str, ...]:
    """`("torch", "randn")` of `torch.randn`; empty where it starts from anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _bindings(scope: ast.AST, name: str, before: int) -> list[tuple[ast.expr, ast.expr]]:
    """The assignments to a name in a body, before a line, without those of functions defined in it."""
    found: list[tuple[ast.expr, ast.expr]] = []
    pending = list(getattr(scope, "body", ()))
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Assign) and node.lineno < before:
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found.append((target, node.value))
                elif isinstance(target, ast.Tuple) and any(isinstance(e, ast.Name) and e.id == name for e in target.elts):
                    found.append((target, node.value))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name and node.value is not None:
            found.append((node.target, node.value))
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending[:0] = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]
    return found


def _asks_for_grad(scope: ast.AST, name: str, before: int) -> bool:
    """`x.requires_grad_()` or `x.requires_grad = True` as a statement of its own."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _path(node.value.func) == (name, "requires_grad_") and node.lineno < before:
            return True
        if isinstance(node, ast.Assign) and any(_path(t) == (name, "requires_grad") for t in node.targets) and node.lineno < before:
            return isinstance(node.value, ast.Constant) and node.value.value is True
    return False


def _recorded(result: typing.Any, *parts: typing.Any) -> typing.Any:
    """A result that requires grad as its operands do: nothing is recorded while a file is read."""
    if isinstance(result, torch.Tensor) and result.is_floating_point() and any(isinstance(p, torch.Tensor) and p.requires_grad for p in parts):
        return result.requires_grad_()
    return result


def _requiring_grad(value: typing.Any) -> typing.Any:
    if isinstance(value, Unknown):
        return value._replace(tensor=True, trained=True)
    return value.detach().requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | ast.arg | None:
    """A parameter's default, or, where it has none, the parameter itself."""
    arguments = function.args
    places = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in places][len(places) - len(arguments.defaults) :], arguments.defaults, strict=True))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    for argument in (*places, *arguments.kwonlyargs):
        if argument.arg == name:
            return defaults.get(name, argument)
    return None


def _of_annotation(argument: ast.arg) -> Unknown:
    return Unknown(argument.annotation is not None and ast.unparse(argument.annotation).rpartition(".")[2] == "Tensor")
