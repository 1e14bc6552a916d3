"""Whose code a module's class is, and the expression in it that builds one of its attributes."""

from __future__ import annotations

import ast
import inspect
import os
import types
from collections.abc import Iterator

from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of
from torchsleuth.origin import Origin, origin_of_file

_SOFTMAXES = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}


def owner_classes(model: nn.Module) -> dict[str, tuple[str, str, bool]]:
    """For each parameter: its module's path and type, and whether the class that holds it is the user's own code."""
    found: dict[str, tuple[str, str, bool]] = {}
    user: dict[str, bool] = {}
    for path, module in model.named_modules():
        parent = path.rpartition(".")[0]
        origin = class_origin(type(module))
        inherited = user.get(parent, True) if path else True
        user[path] = origin is Origin.USER or (origin is Origin.TORCH and inherited)
        for name in module._parameters.keys():  # noqa: SIM118  (that of a scripted module cannot be walked through otherwise)
            found[f"{path}.{name}" if path else name] = (path, type(module).__name__, user[path])
    return found


def class_origin(kind: type) -> Origin:
    code = _some_code(kind)
    if code is not None:
        return origin_of_file(code.co_filename)
    try:
        return origin_of_file(inspect.getfile(kind))
    except (TypeError, OSError):
        return Origin.USER


def _some_code(kind: type) -> types.CodeType | None:
    """The code of a method of this class: it knows its file even when `__main__` has been replaced since."""
    return next((f.__code__ for f in vars(kind).values() if inspect.isfunction(f) and f.__qualname__.startswith(kind.__qualname__)), None)


def criterion_built(call: Site) -> Site | None:
    """The one assignment in its file that makes the loss which is called here, as the source has it: `criterion = nn.CrossEntropyLoss()`."""
    filename = os.path.abspath(call.span.file)
    tree = syntax_of(filename)
    called = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and (n.lineno, n.end_lineno) == (call.span.line, call.span.end_line)] if tree is not None else []
    names = {ast.unparse(n.func) for n in called if ast.unparse(n) == _normal(call.source)}
    if tree is None or len(names) != 1:
        return None
    made = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and any(ast.unparse(target) in names for target in n.targets)]
    if len(made) == 1 and isinstance(made[0], ast.Call) and ast.unparse(made[0].func).endswith("Loss"):
        return site_of_node(filename, made[0])
    return None


def softmax_built(run: Site | None, operation: str) -> Site | None:
    """Where the softmax layer was built that ran in this call of a layer, as the source of the file has it: in what the layer was assigned, or the only one."""
    called = _call_of(run.source) if run is not None else None
    tree = syntax_of(os.path.abspath(run.span.file)) if run is not None else None
    if run is None or tree is None or called is None or operation not in _SOFTMAXES:
        return None
    made = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", getattr(n.func, "id", "")) == _SOFTMAXES[operation]]
    held = [n for target, value in assignments(tree) if ast.unparse(target) == ast.unparse(called) for n in ast.walk(value) if n in made]
    found = held or (made if isinstance(called, ast.Name) and called.id not in (operation, "F") else [])
    return site_of_node(os.path.abspath(run.span.file), found[0]) if len(found) == 1 and found[0].lineno != run.span.line else None


def _call_of(source: str) -> ast.expr | None:
    """What is called by an expression that is a call."""
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return None
    return node.func if isinstance(node, ast.Call) else None


def _normal(source: str) -> str:
    try:
        return ast.unparse(ast.parse(source, mode="eval"))
    except SyntaxError:
        return ""


def bound_again(optimizer: Site) -> Site | None:
    """The one assignment after an optimizer was built that gives the name of its model to something else, as the source has it."""
    filename = os.path.abspath(optimizer.span.file)
    tree = syntax_of(filename)
    if tree is None:
        return None
    scope: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= optimizer.span.line <= (node.end_lineno or 0):
            scope = node  # outside in
    inside = [node for node in ast.walk(scope) if isinstance(node, ast.Call) and optimizer.span.line <= node.lineno <= optimizer.span.end_line]
    models = {ast.unparse(node.func.value) for node in inside if isinstance(node.func, ast.Attribute) and node.func.attr in ("parameters", "named_parameters")}
    later = [
        statement for statement in ast.walk(scope)
        if isinstance(statement, ast.Assign) and statement.lineno > optimizer.span.end_line and any(ast.unparse(t) in models for t in statement.targets)
    ]  # fmt: skip
    return site_of_node(filename, later[0], optimizer.function) if len(later) == 1 else None


def source_of(kind: type) -> tuple[str, ast.ClassDef | None]:
    """The file of a class of the program's, and its source."""
    code = _some_code(kind)
    tree = syntax_of(code.co_filename) if code is not None else None
    if tree is None or code is None or origin_of_file(code.co_filename) is not Origin.USER:
        return "", None
    inside = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == kind.__name__ and n.lineno <= code.co_firstlineno <= (n.end_lineno or 0))
    return code.co_filename, next(inside, None)


def built(holder: nn.Module, name: str) -> Site | None:
    """The expression in the class's source that is assigned to this attribute."""
    code = _some_code(type(holder))
    tree = syntax_of(code.co_filename) if code is not None else None
    if tree is None or code is None or origin_of_file(code.co_filename) is Origin.TORCH:
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name != type(holder).__name__ or not node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
            continue
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign):
                for target, value in assigned(statement):
                    if isinstance(target, ast.Attribute) and target.attr == name:
                        return site_of_node(code.co_filename, value, type(holder).__qualname__)
    return None


def initialised(model: nn.Module, path: str) -> Site | None:
    """The one expression in the source of a layer's owners that gives the layer's weight its first values: `nn.init.normal_(self.head.weight)`, or of any layer, `m.weight`."""
    parent, _, name = path.rpartition(".")
    owners = [parent, *(".".join(parent.split(".")[:count]) for count in range(parent.count("."), 0, -1)), ""]
    for owner in dict.fromkeys(owners):
        module = model.get_submodule(owner)
        code = _some_code(type(module))
        tree = syntax_of(code.co_filename) if code is not None else None
        if tree is None or code is None or origin_of_file(code.co_filename) is Origin.TORCH:
            continue
        inside = [node for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) and kind.name == type(module).__name__ for node in ast.walk(kind)]
        wrote = [(node, written) for node in inside if (written := _weight_written(node)) is not None]
        own = [node for node, written in wrote if owner == parent and written == f"self.{name}"]
        found = own or [node for node, written in wrote if not written.startswith("self.")]
        if found:
            return site_of_node(code.co_filename, found[-1], type(module).__qualname__) if own or len(found) == 1 else None
    return None


def _weight_written(node: ast.AST) -> str | None:
    """`nn.init.normal_(layer.weight)`, `layer.weight.data.mul_(3)`, `layer.weight.data *= 3`: the layer, as the source has it."""
    written: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
        written = node.func.value if ".weight" in ast.unparse(node.func.value) else node.args[0] if node.args else None
    elif isinstance(node, ast.AugAssign):
        written = node.target
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        written = node.targets[0]
    text = ast.unparse(written).removesuffix(".data") if written is not None else ""
    return text.removesuffix(".weight") if text.endswith(".weight") else None


def default_of(kind: type, argument: str) -> Site | None:
    """The default value of an argument of this class's `__init__`, in its source."""
    code = getattr(inspect.unwrap(kind.__init__), "__code__", None)  # type: ignore[misc]
    for node in ast.walk(syntax_of(code.co_filename) or ast.Module([], [])) if code is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and node.lineno >= code.co_firstlineno and node.end_lineno is not None:
            given = node.args
            names = [*given.posonlyargs, *given.args]
            values = [*zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
            return next((site_of_node(code.co_filename, value, code.co_qualname) for name, value in values if name.arg == argument and value is not None), None)
    return None


def assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """All targets in this source with what is assigned to them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from assigned(node)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield node.target, node.value


def assigned(statement: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what is assigned to them; of `a, b = x, y` each with its own."""
    for target in statement.targets:
        if not isinstance(target, (ast.Tuple, ast.List)):
            yield target, statement.value
            continue
        each = isinstance(statement.value, (ast.Tuple, ast.List)) and len(statement.value.elts) == len(target.elts)
        for position, one in enumerate(target.elts):
            yield one, statement.value.elts[position] if each else statement.value  # type: ignore[attr-defined]
