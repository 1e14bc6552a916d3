"""Who else holds this tensor? Decides from the source whether giving a variable a new tensor is seen by anyone else.

An in-place write changes the tensor for all who hold it; an out-of-place one gives a new tensor to one name. The two
mean the same where nothing else holds the old tensor and looks at it afterwards.
"""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Function, Script, called, names_in, path_of

# Methods whose result shares memory with the tensor they are called on.
VIEWS = {
    "view", "reshape", "transpose", "permute", "t", "squeeze", "unsqueeze", "expand", "expand_as", "narrow", "select",
    "flatten", "unbind", "split", "chunk", "tensor_split", "detach", "contiguous", "view_as", "swapaxes", "movedim", "unfold", "diagonal",
    "float", "double", "to", "cpu", "cuda", "half", "requires_grad_", "squeeze_", "unsqueeze_", "T", "mT", "data", "real", "imag",
}  # fmt: skip
_KEEPS = {"append", "extend", "insert", "add", "put", "setdefault", "update", "register_buffer", "appendleft"}
_KEEPERS = {"partial", "zip", "enumerate", "iter", "list", "tuple", "dict", "set", "reversed", "map", "filter", "deque", "namedtuple", "cycle", "chain"}
_INDEX_MAKERS = {"arange", "argmax", "argmin", "argsort", "bool", "flip", "int", "logical_not", "long", "nonzero", "randint", "randperm", "tensor", "topk", "where"}
_NAMESPACES = {"torch", "F", "nn", "functional", "np", "math", "th", "numpy"}


def is_seen_elsewhere(script: Script, write: ast.stmt, target: ast.expr) -> str:
    """"" where only `target` itself sees the difference, else who else may: words for the fix's meaning."""
    if isinstance(target, ast.Attribute):
        return _attribute(script, write, target)
    if not isinstance(target, ast.Name):
        return "whoever holds the same tensor"
    return _name(script, write, target.id)


def _name(script: Script, write: ast.stmt, name: str) -> str:
    scope = script.scope_of(write)
    if isinstance(scope, ast.Lambda):
        return "the caller"
    if name in _parameters(scope):
        return "" if _is_rebound_before(script, scope, write, name) else f"the caller's tensor behind the argument `{name}`"
    for node in script.own_nodes(scope):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return ""
        if isinstance(node, (ast.For, ast.AsyncFor)) and name in names_in(node.target):
            return f"what the loop runs over: `{script.segment(node.iter)}`"
        if isinstance(node, (ast.With, ast.AsyncWith)) and any(i.optional_vars is not None and name in names_in(i.optional_vars) for i in node.items):
            return f"whoever else holds `{name}`"
    for holder in sorted(_holders(script, scope, name) - _other_pieces(script, scope, name)):
        if _is_used_from(script, scope, write, holder):
            return f"`{holder}`, which may share its memory"
    for node in script.own_nodes(scope):
        kept = _kept_by(script, node, name)
        if kept:
            return kept
    if isinstance(scope, ast.Module):
        return ""
    # A nested function that reads the name sees the new binding; nothing to fear from closures.
    return "" if _bindings(script, scope, name) else f"whoever else holds `{name}`"


def _attribute(script: Script, write: ast.stmt, target: ast.Attribute) -> str:
    """An attribute is rebound on its object; another name for the tensor in the same function would miss it."""
    text = path_of(target)
    if not text:
        return "whoever holds the same tensor"
    scope = script.scope_of(write)
    for node in script.own_nodes(scope):
        if isinstance(node, ast.Assign) and text in _shared_from(script, node.value):
            for goal in node.targets:
                if isinstance(goal, ast.Name) and _is_used_from(script, scope, write, goal.id):
                    return f"`{goal.id}`, which may share its memory"
    return ""


def is_list(script: Script, statement: ast.stmt, node: ast.expr) -> bool:
    """Whether the source says that this is a list or dict (of tensors), not a tensor."""
    text = ast.unparse(node)
    scopes = [script.scope_of(statement), script.tree]
    for scope in scopes:
        for other in script.own_nodes(scope):
            if isinstance(other, ast.Assign) and any(ast.unparse(target) == text for target in other.targets):
                if isinstance(other.value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)) or called(other.value) in ("list", "dict"):
                    return True
    if isinstance(node, ast.Attribute):
        # `self.items` is set as such, or in the body of the class.
        texts = {text, node.attr} if path_of(node.value) in ("self", "cls") else {text}
        for other in ast.walk(script.tree):
            targets = other.targets if isinstance(other, ast.Assign) else [other.target] if isinstance(other, ast.AnnAssign) else []
            if isinstance(getattr(other, "value", None), (ast.List, ast.ListComp, ast.Dict, ast.DictComp)) and any(ast.unparse(t) in texts for t in targets):
                return True
    return False


def is_read_later(script: Script, statement: ast.stmt, name: str) -> bool:
    """Whether this function reads the variable after the statement."""
    return _is_used_from(script, script.scope_of(statement), statement, name)


def _parameters(scope: ast.AST) -> set[str]:
    if not isinstance(scope, (*Function, ast.Lambda)):
        return set()
    arguments = scope.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument is not None}


def _bindings(script: Script, scope: ast.AST, name: str) -> list[ast.Assign | ast.AnnAssign]:
    found = []
    for node in script.own_nodes(scope):
        if isinstance(node, ast.Assign) and any(name in names_in(target, ast.Store) for target in node.targets):
            found.append(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name and node.value is not None:
            found.append(node)
    return found


def _is_rebound_before(script: Script, scope: ast.AST, write: ast.stmt, name: str) -> bool:
    """The argument was given a fresh tensor, unconditionally, before the write: `x = x * 2`."""
    body = scope.body if isinstance(scope.body, list) else []
    for node in _bindings(script, scope, name):
        if node in body and node.lineno < write.lineno and (node in script.allocating or not _shared_from(script, node.value)):
            return True
    return False


def _holders(script: Script, scope: ast.AST, name: str) -> set[str]:
    """Other names whose tensor is, or shares memory with, this one's: `y = x`, `row = x[0]`, `x = y.view(-1)`."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        for node, targets, value in _bound_in(script, scope):
            shared = _shared_from(script, value) if node not in script.allocating else set()
            stored = {n for target in targets for n in _plain_targets(script, node, target)}
            linked = stored if current in shared else shared if current in stored else set()
            if current in stored and len(targets) > 1:
                linked = linked | stored  # `a = b = f(x)`: one tensor, two names
            for other in linked - found - {name}:
                found.add(other)
                pending.append(other)
    return found


APART = ("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit")


def _other_pieces(script: Script, scope: ast.AST, name: str) -> set[str]:
    """`b` and `c` of `a, b, c = x.unbind()`: of one memory with `a`, but no element of theirs is one of its own."""
    found: set[str] = set()
    for node, targets, value in _bound_in(script, scope):
        if isinstance(value, ast.Call) and called(value) in APART:
            for target in targets:
                names = set(_plain_targets(script, node, target)) if isinstance(target, (ast.Tuple, ast.List)) else set()
                found |= names - {name} if name in names else set()
    return found


def _bound_in(script: Script, scope: ast.AST) -> list[tuple[ast.AST, list[ast.expr], ast.expr]]:
    """Every way in which a function binds names: (node, targets, value)."""
    found: list[tuple[ast.AST, list[ast.expr], ast.expr]] = []
    for node in script.own_nodes(scope):
        if isinstance(node, ast.Assign):
            found.append((node, node.targets, node.value))
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            found.append((node, [node.target], node.value))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None and isinstance(item.context_expr, ast.Call):
                    given = ast.Tuple([*item.context_expr.args, *(k.value for k in item.context_expr.keywords)], ast.Load())
                    found.append((node, [item.optional_vars], given))
    return found


def _plain_targets(script: Script, statement: ast.stmt, target: ast.expr) -> list[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for item in target.elts for name in _plain_targets(script, statement, item)]
    if isinstance(target, ast.Starred):
        return _plain_targets(script, statement, target.value)
    if isinstance(target, ast.Subscript):
        # Into a list it is the tensor that is stored, into a tensor its values.
        return [path_of(target.value)] if is_list(script, statement, target.value) and path_of(target.value) else []
    text = path_of(target)
    return [text] if text else []


def _is_index_tensor(part: ast.expr) -> bool:
    """A list, a mask, or what torch has made or chosen; a call of any other kind may give a number."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        return part.func.attr in _INDEX_MAKERS
    return isinstance(part, (ast.List, ast.Compare))


def _shared_from(script: Script, value: ast.expr | None) -> set[str]:
    """Names whose memory the value of an expression may share."""
    if value is None:
        return set()
    if isinstance(value, (ast.Name, ast.Attribute)):
        if isinstance(value, ast.Attribute) and value.attr in VIEWS:
            return _shared_from(script, value.value)
        text = path_of(value)
        return {text} if text else set()
    if isinstance(value, ast.Subscript):
        # A list, a mask or an index tensor copies; a number or a slice makes a view.
        parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        return set() if any(_is_index_tensor(part) for part in parts) else _shared_from(script, value.value)
    if isinstance(value, (ast.Tuple, ast.List)):
        return {name for item in value.elts for name in _shared_from(script, item)}
    if isinstance(value, ast.IfExp):
        return _shared_from(script, value.body) | _shared_from(script, value.orelse)
    if isinstance(value, ast.NamedExpr):
        return _shared_from(script, value.value)
    if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        # `[t for t in (a, b)]` holds what it ran over; of what was computed from it nothing is shared.
        plain = isinstance(value.elt, (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.IfExp))
        return {name for part in value.generators for name in _shared_from(script, part.iter)} if plain else set()
    if isinstance(value, ast.Starred):
        return _shared_from(script, value.value)
    if isinstance(value, ast.Dict):
        return {name for item in value.values for name in _shared_from(script, item)}
    if isinstance(value, ast.Call):
        name = called(value)
        if isinstance(value.func, ast.Attribute) and path_of(value.func.value).split(".")[0] not in _NAMESPACES:
            if name in VIEWS or (name.endswith("_") and not name.endswith("__")):
                return _shared_from(script, value.func.value)
        if name in VIEWS and value.args and isinstance(value.func, ast.Attribute) and path_of(value.func.value) in ("torch", "th"):
            return _shared_from(script, value.args[0])  # `torch.split(x, 2)`
        if _is_own_function(script, name) or name[:1].isupper() or name in _KEEPERS or isinstance(value.func, ast.Lambda):
            # A function of the user's may hand back what it was given; an object may keep what it was made from.
            return {n for argument in [*value.args, *(k.value for k in value.keywords)] for n in _shared_from(script, argument)}
    return set()


def _is_own_function(script: Script, name: str) -> bool:
    return any(isinstance(node, Function) and node.name == name for node in ast.walk(script.tree))


def _is_used_from(script: Script, scope: ast.AST, write: ast.stmt, name: str) -> bool:
    """Read after the write: further down, or anywhere in a loop around it, or outside this function."""
    if "." in name:
        return True  # an attribute outlives the function
    if name in _parameters(scope):
        return True
    loops = script.loops_around(write)
    outer = loops[-1] if loops else None
    for node in script.own_nodes(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            if node.lineno > (write.end_lineno or write.lineno):
                return True
            if outer is not None and outer.lineno <= node.lineno <= (outer.end_lineno or outer.lineno):
                return True
        if isinstance(node, (*Function, ast.Lambda)) and name in names_in(node, ast.Load):
            return True
    return False


def _kept_by(script: Script, node: ast.AST, name: str) -> str:
    """Places that keep the tensor itself for later: `parts.append(x)`, `self.last = x`, `cache[k] = x`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
        if path_of(node.func.value).split(".")[0] in _NAMESPACES or name == path_of(node.func.value):
            return ""
        if any(name in _shared_from(script, argument) for argument in node.args):
            return f"`{script.segment(node.func.value)}`, which keeps it"
    if isinstance(node, ast.Call) and _hands_over(script, node, name):
        return f"`{script.segment(node.func)}`, which keeps it"
    if isinstance(node, ast.AugAssign) and path_of(node.target) != name and isinstance(node.value, (ast.List, ast.Tuple, ast.ListComp)):
        if name in _shared_from(script, node.value):
            return f"`{script.segment(node.target)}`, which keeps it"
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in _shared_from(script, node.value):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) or (isinstance(target, ast.Subscript) and is_list(script, node, target.value)):
                return f"`{script.segment(target)}`, which keeps it"
    if isinstance(node, (*Function, ast.Lambda)):
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        if any(name in _shared_from(script, default) for default in defaults):
            return f"`{getattr(node, 'name', 'lambda')}`, whose default it is"
    if isinstance(node, (ast.Yield, ast.YieldFrom)) and node.value is not None and name in _shared_from(script, node.value):
        return "what was yielded"
    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.List, ast.Tuple, ast.Dict)):
        items = node.value.values if isinstance(node.value, ast.Dict) else node.value.elts
        targets = [t for t in node.targets if not isinstance(t, (ast.Tuple, ast.List))]
        if targets and any(item is not None and name in _shared_from(script, item) for item in items):
            return f"`{script.segment(targets[0])}`, which keeps it"
    return ""


def _hands_over(script: Script, call: ast.Call, name: str, depth: int = 2) -> bool:
    """A call of a function, method or module of this file that stores what it is given."""
    given = [position for position, argument in enumerate(call.args) if name in _shared_from(script, argument)]
    named = [keyword.arg for keyword in call.keywords if keyword.arg and name in _shared_from(script, keyword.value)]
    if not (given or named) or not depth:
        return False
    for function in _callees(script, call):
        own = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        if own and own[0] in ("self", "cls") and isinstance(script.parent(function), ast.ClassDef):
            own = own[1:]
        received = {own[position] for position in given if position < len(own)} | set(named)
        outside = {other for node in script.own_nodes(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for other in node.names}
        for node in script.own_nodes(function):
            for parameter in received:
                if isinstance(node, ast.Assign) and parameter in _shared_from(script, node.value) and names_in(node, ast.Store) & outside:
                    return True
                if isinstance(node, ast.Call) and (_kept_by_call(script, node, parameter) or _hands_over(script, node, parameter, depth - 1)):
                    return True
                if not isinstance(node, ast.Call) and _kept_by(script, node, parameter):
                    return True
    return False


def _callees(script: Script, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of this file that a call may run: by name, or the forward of a module made from a class of this file."""
    last = called(call)
    found = [node for node in ast.walk(script.tree) if isinstance(node, Function) and node.name == last]
    if found:
        return found
    made = {
        called(node.value)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and any(path_of(target) == path_of(call.func) != "" for target in node.targets)
    }
    return [
        method
        for node in ast.walk(script.tree)
        if isinstance(node, ast.ClassDef) and node.name in made
        for method in node.body
        if isinstance(method, Function) and method.name in ("forward", "__call__")
    ]


def _kept_by_call(script: Script, node: ast.Call, name: str) -> bool:
    """`parts.append(x)`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _KEEPS or path_of(node.func.value).split(".")[0] in _NAMESPACES:
        return False
    return name != path_of(node.func.value) and any(name in _shared_from(script, argument) for argument in node.args)
