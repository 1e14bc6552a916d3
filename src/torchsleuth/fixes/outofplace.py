"""The out-of-place form of an in-place write, as text edits, for every way a write can be spelled."""

from __future__ import annotations

import ast

from torchsleuth.fixes.aliases import is_list, is_seen_elsewhere
from torchsleuth.fixes.script import Function, Script, called, path_of
from torchsleuth.frozen import frozen
from torchsleuth.model import Edit, Span

OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
# In-place methods without an out-of-place twin of the same name and meaning: these write into a clone.
NO_TWIN = {
    "copy_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_",
    "fill_diagonal_", "set_", "resize_", "resize_as_", "apply_", "map_", "map2_", "fill_", "zero_",
}  # fmt: skip
_NAMESPACES = {"torch", "F", "functional", "nn"}


@frozen
class Rewrite:
    """Edits that make one write out of place."""

    edits: list[Edit]
    title: str
    seen_by: str = ""  # who else would have seen the write, "" for nobody
    copies: bool = False  # by writing into a clone


def out_of_place(script: Script, span: Span, on_tensor_subscript: bool = True) -> Rewrite | None:
    """The write at `span` out of place; None where its spelling is not one of those known.

    `on_tensor_subscript`: in `x[i] += y`, `x` is a tensor (not a list of tensors).
    """
    node = script.node_at(span)
    statement = script.statement_of(node) if node is not None else script.statement_at(span)
    if statement is None:
        return None
    write = write_in(statement)
    if write is not None and not may_be_bound(script, statement, write[1]):
        return None
    if isinstance(statement, ast.AugAssign) and (node is statement or node is statement.target or node is None):
        return _augmented(script, statement, on_tensor_subscript)
    if isinstance(statement, ast.Assign) and isinstance(node, ast.Subscript) and any(node is target for target in statement.targets):
        return _into_a_copy(script, statement, node)
    if isinstance(node, ast.Call):
        return _called(script, statement, node, on_tensor_subscript)
    return None


def is_for_the_caller(script: Script, statement: ast.stmt, name: str) -> bool:
    """`def scale_(x): x *= 2`: all that the write is for is the caller's tensor, and a new one would be forgotten."""
    scope = script.scope_of(statement)
    if not isinstance(scope, Function) or isinstance(statement, ast.Return) or name not in {argument.arg for argument in scope.args.args}:
        return False
    loops = script.loops_around(statement)
    until = statement.end_lineno or statement.lineno
    reads = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)]
    return not any(node.lineno > until or any(loop.lineno <= node.lineno <= (loop.end_lineno or loop.lineno) for loop in loops) for node in reads)


def may_be_bound(script: Script, statement: ast.stmt, name: str) -> bool:
    """Binding the name here does not make a new local variable of one from outside the function."""
    scope = script.scope_of(statement)
    if not name.isidentifier() or not isinstance(scope, Function):
        return True
    arguments = {a.arg for a in [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs, scope.args.vararg, scope.args.kwarg] if a is not None}
    nodes = list(script.own_nodes(scope))
    declared = {other for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for other in node.names}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return name in arguments | declared | bound


def write_in(statement: ast.stmt) -> tuple[ast.AST, str] | None:
    """The in-place write that a simple statement consists of, and the path of what it writes into; None where it is none."""
    if isinstance(statement, ast.AugAssign):
        node: ast.AST = statement
        target: ast.expr | None = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Subscript):
        node, target = statement.targets[0], statement.targets[0]
    elif isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and isinstance(statement.value, ast.Call):
        node = statement.value
        name = called(node)
        flag = any(k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords)
        if not flag and (not name.endswith("_") or name.endswith("__") or name == "requires_grad_"):
            return None
        function = node.func
        space = not isinstance(function, ast.Attribute) or path_of(function.value).split(".")[-1] in _NAMESPACES
        target = (node.args[0] if node.args else None) if space else function.value
    else:
        return None
    while True:
        if isinstance(target, (ast.Subscript, ast.Attribute)) and not path_of(target):
            target = target.value
        elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        else:
            break
    return (node, path_of(target)) if path_of(target) else None


def _augmented(script: Script, statement: ast.AugAssign, on_tensor: bool) -> Rewrite | None:
    target, value = statement.target, statement.value
    if isinstance(target, ast.Subscript) and on_tensor:
        return _into_a_copy(script, statement, target)
    symbol = OPERATORS.get(type(statement.op))
    if symbol is None:
        return None
    name = script.segment(target)
    start, end = script.end(target), script.start(value)
    middle = script.between(start, end)
    at = middle.split("\n")[0].find(f"{symbol}=")
    if at < 0:
        return None
    operator = (start[0], start[1] + at)
    edits = [script.edit(operator, (operator[0], operator[1] + len(symbol) + 1), f"= {name} {symbol}")]
    if _needs_brackets(value, statement.op) and "(" not in middle[at:]:
        edits += [script.insert(script.start(value), "("), script.insert(script.end(value), ")")]
    title = f"Give `{name}` a new tensor instead of writing into the old one: `{name} = {name} {symbol} ...`."
    if isinstance(target, ast.Subscript):
        return Rewrite(edits, title, f"whoever else holds `{name}`")
    return Rewrite(edits, title, is_seen_elsewhere(script, statement, target))


_BINDING = {ast.Pow: 6, ast.MatMult: 5, ast.Mult: 5, ast.Div: 5, ast.FloorDiv: 5, ast.Mod: 5, ast.Add: 4, ast.Sub: 4, ast.LShift: 3,
            ast.RShift: 3, ast.BitAnd: 2, ast.BitXor: 1, ast.BitOr: 0}  # fmt: skip


def _needs_brackets(value: ast.expr, operator: ast.operator) -> bool:
    """Whether the value would be torn apart behind `x op`. Equal strength needs them too: `x - (a - b)`."""
    if isinstance(value, ast.BinOp):
        return _BINDING[type(value.op)] <= _BINDING[type(operator)]
    return isinstance(
        value, (ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.UnaryOp, ast.NamedExpr, ast.Tuple, ast.Await, ast.Yield)
    )


def _into_a_copy(script: Script, statement: ast.stmt, target: ast.Subscript) -> Rewrite | None:
    """`x[i] = y` after `x = x.clone()`: the old tensor keeps its values."""
    root: ast.expr = target
    while isinstance(root, ast.Subscript) or (isinstance(root, ast.Attribute) and root.attr in ("T", "mT")):
        if isinstance(root, ast.Subscript) and is_list(script, statement, root.value):
            break
        root = root.value
    name = path_of(root) or (script.segment(root) if isinstance(root, ast.Subscript) and path_of(root.value) else "")
    if not name or root is target:
        return None
    edits = script.before(statement, f"{name} = {name}.clone()")
    title = f"Write into a copy: `{name} = {name}.clone()` before `{_short(script, statement)}`."
    return Rewrite(edits, title, is_seen_elsewhere(script, statement, root), copies=True) if edits else None


def _short(script: Script, node: ast.AST) -> str:
    text = " ".join(script.segment(node).split())
    return text if len(text) <= 50 else text[:47] + "..."


def _called(script: Script, statement: ast.stmt, call: ast.Call, on_tensor: bool) -> Rewrite | None:
    # The last link of a chain `x.mul_(a).add_(b)` stands for all of it.
    while True:
        parent = script.parent(call)
        outer = script.parent(parent) if isinstance(parent, ast.Attribute) else None
        if isinstance(outer, ast.Call) and outer.func is parent and parent.attr.endswith("_"):
            call = outer
        else:
            break
    function = call.func
    out = next((keyword for keyword in call.keywords if keyword.arg == "out"), None)
    if out is not None:
        return without_out(script, statement, call, out) if path_of(out.value) else None
    flag = next((k for k in call.keywords if k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value is True), None)
    if flag is not None and call.args:
        edits = [script.replace(flag.value, "False")]
        return _bound(script, statement, call, call.args[0], edits, "Compute it out of place: `inplace=False`.")
    if not isinstance(function, ast.Attribute) or not function.attr.endswith("_") or function.attr.endswith("__"):
        return None
    if path_of(function.value).split(".")[-1] in _NAMESPACES and call.args:
        edits = _renamed(script, function)
        return _bound(script, statement, call, call.args[0], edits, f"Use the out-of-place `{function.attr[:-1]}`.")
    links = []
    at: ast.expr = call
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr.endswith("_"):
        links.append(at)
        at = at.func.value
    links.reverse()
    given = [value for link in links[1:] for value in (*link.args, *(keyword.value for keyword in link.keywords))]
    if any(path_of(node) == path_of(at) != "" for value in given for node in ast.walk(value)):
        return None  # `x.mul_(2).add_(x)` adds what the link before has left in `x`
    if isinstance(at, (ast.Subscript, ast.Call)) and on_tensor:
        root = _viewed(script, statement, at)
        return _into_a_copy_of(script, statement, root) if root is not None else None
    edits, copied = [], False
    for link in links:
        if copied:
            continue
        if link.func.attr in NO_TWIN:
            edits.append(_new_tensor(script, link, at) if len(links) == 1 else script.insert(script.end(link.func.value), ".clone()"))
            copied = True
        else:
            edits += _renamed(script, link.func)
    words = f"Use the out-of-place form and bind its result: `{script.segment(at)} = ...`."
    return _bound(script, statement, call, at, edits, words)


def _new_tensor(script: Script, call: ast.Call, target: ast.expr) -> Edit:
    torch, name = script.module_name("torch"), script.segment(target)
    if torch and call.func.attr == "zero_":
        return script.replace(call, f"{torch}.zeros_like({name})")
    if torch and call.func.attr == "fill_" and len(call.args) == 1 and isinstance(call.args[0], (ast.Constant, ast.UnaryOp)):
        return script.replace(call, f"{torch}.full_like({name}, {script.segment(call.args[0])})")
    return script.insert(script.end(target), ".clone()")


def _renamed(script: Script, function: ast.Attribute) -> list[Edit]:
    line, column = script.end(function)
    return [script.edit((line, column - 1), (line, column), "")]


def _viewed(script: Script, statement: ast.stmt, node: ast.expr) -> ast.expr | None:
    """The tensor behind a chain of views: `x` for `x[0].view(-1)`."""
    while not isinstance(node, (ast.Name,)):
        if isinstance(node, ast.Subscript) and is_list(script, statement, node.value):
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("T", "mT")):
            node = node.value
        elif isinstance(node, ast.Attribute) and path_of(node):
            return node
        else:
            return None
    return node


def _into_a_copy_of(script: Script, statement: ast.stmt, root: ast.expr) -> Rewrite | None:
    name = path_of(root)
    edits = script.before(statement, f"{name} = {name}.clone()") if name else []
    title = f"Write into a copy: `{name} = {name}.clone()` before `{_short(script, statement)}`."
    return Rewrite(edits, title, is_seen_elsewhere(script, statement, root), copies=True) if edits else None


def _bound(script: Script, statement: ast.stmt, call: ast.Call, target: ast.expr, edits: list[Edit], title: str) -> Rewrite | None:
    """The call made out of place, and its result given to the name that had been written into."""
    name = script.segment(target)
    if not isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) or not edits:
        return Rewrite(edits, title) if edits and not isinstance(statement, ast.Expr) else None
    seen = is_seen_elsewhere(script, statement, target)
    start = script.start(statement)
    if isinstance(statement, ast.Expr) and statement.value is call:
        if any(edit.span.line == start[0] and edit.span.column == start[1] for edit in edits):
            # The whole call is replaced: the binding goes into the same edit.
            first = edits[0]
            return Rewrite([script.edit(start, (first.span.end_line, first.span.end_column), f"{name} = {first.replacement}")], title, seen)
        return Rewrite([script.insert(start, f"{name} = "), *edits], title, seen)
    if isinstance(statement, ast.Assign) and statement.value is call:
        if any(path_of(goal) == path_of(target) != "" for goal in statement.targets):
            return Rewrite(edits, title, seen)
        if isinstance(target, ast.Subscript):
            return None
        if any(edit.span.line == script.start(call)[0] and edit.span.column == script.start(call)[1] for edit in edits):
            return None
        return Rewrite([script.insert(script.start(call), f"{name} = "), *edits], title, seen)
    if isinstance(statement, ast.Return):
        return Rewrite(edits, title, seen)
    # In the middle of an expression the old name keeps the old values.
    return Rewrite(edits, title, seen or f"`{name}`, which keeps its old values after this expression")


def without_out(script: Script, statement: ast.stmt, call: ast.Call, out: ast.keyword) -> Rewrite | None:
    """`torch.add(x, y, out=z)` → `z = torch.add(x, y)`, and `out=z[i]` → `z[i] = torch.add(x, y)`, which assigns."""
    name = path_of(out.value) or (script.segment(out.value) if isinstance(out.value, ast.Subscript) else "")
    if not name or not may_be_bound(script, statement, name):
        return None
    before = [*call.args, *(k.value for k in call.keywords if k is not out and k.value.lineno <= out.value.lineno)]
    before = [node for node in before if script.end(node) <= script.start(out.value)]
    if before:
        last = max(before, key=script.end)
        edit = script.edit(script.end(last), script.end(out.value), "")
        if ")" in script.between(script.end(last), script.start(out.value)):
            return None
    else:
        return None
    return _bound(script, statement, call, out.value, [edit], f"Leave out `out={name}` and bind the result.")
