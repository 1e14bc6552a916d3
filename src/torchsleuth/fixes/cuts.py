"""One cut in a graph taken out: a detach, a copy of bare numbers, a value that went through Python."""

from __future__ import annotations

import ast

from torchsleuth.evidence import GradientCut, LostGradient
from torchsleuth.fixes.numpy_detour import with_torch
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.linter.edits import without_overlaps
from torchsleuth.model import Edit

_MAKERS = {"tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor", "asarray"}


def without_cut(scripts: Scripts, cut: GradientCut, lost: LostGradient) -> tuple[list[Edit], str] | None:
    found = scripts.node_at(cut.place)
    if found is None:
        return None
    script, node = found
    if isinstance(node, ast.Call) and called(node) in _MAKERS and cut.reason == "copy":
        edits = _kept_tensor(script, node)
        return (edits, f"`{_stacked_word(script, node)}` keeps the history; `{ast.unparse(node.func)}` copies bare numbers") if edits else None
    if isinstance(node, ast.Call) and called(node) == "grad" and not any(k.arg in ("create_graph", None) for k in node.keywords) and (node.args or node.keywords):
        last = max(script.end(item) for item in [*node.args, *(k.value for k in node.keywords)])
        return [script.insert(last, ", create_graph=True")], "`create_graph=True` keeps the history of the gradient itself"
    outer = handed_on(script, node)
    if outer is not None:
        return _stays_tensor(scripts, script, outer, lost) or with_torch(script, node)
    if cut.reason == "detach":
        return without_detach(scripts, cut)
    if cut.reason == "python":
        return _stays_tensor(scripts, script, node, lost) or with_torch(script, node)
    return None


def without_detach(scripts: Scripts, cut: GradientCut) -> tuple[list[Edit], str] | None:
    found = scripts.node_at(cut.place) if cut.reason == "detach" else None
    if found is None or cut.handed:
        return None  # without it numpy refuses the tensor: "Can't call numpy() on Tensor that requires grad"
    edits = _removed_link(*found)
    return (edits, f"Leave out `.{cut.operation}{'()' if isinstance(found[1], ast.Call) else ''}`") if edits else None


def handed_on(script: Script, node: ast.AST) -> ast.Call | None:
    """The `.numpy()` or `.item()` at the end of a chain that starts with a detach: `x.detach().cpu().numpy()`."""
    last = None
    while True:
        link = script.parent(node)
        call = script.parent(link) if isinstance(link, ast.Attribute) and link.value is node else None
        if not isinstance(call, ast.Call) or call.func is not link or link.attr not in ("cpu", "detach", "numpy", "item", "tolist"):
            return last
        if link.attr in ("numpy", "item", "tolist"):
            last = call
        node = call


def _removed_link(script: Script, node: ast.AST) -> list[Edit]:
    """`x.detach()` → `x`, `x.data` → `x`, `torch.detach(x)` → `x`."""
    if isinstance(node, ast.Attribute):
        return [script.edit(script.end(node.value), script.end(node), "")] if not _closing_bracket(script, node.value, node) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if path_of(node.func.value) == script.module_name("torch") and node.args:
            return [script.replace(node, script.closed(node.args[0]))]
        if _closing_bracket(script, node.func.value, node.func):
            # `(a + b).detach()`: the bracket stays.
            text = script.between(script.end(node.func.value), script.end(node))
            keep = text[: text.index(")") + 1]
            line, column = script.end(node.func.value)
            return [] if "\n" in keep else [script.edit((line, column + len(keep)), script.end(node), "")]
        return [script.edit(script.end(node.func.value), script.end(node), "")]
    return []


def _closing_bracket(script: Script, inner: ast.AST, outer: ast.AST) -> bool:
    return ")" in script.between(script.end(inner), script.end(outer))


def _kept_tensor(script: Script, call: ast.Call) -> list[Edit]:
    """`torch.tensor(losses)` → `torch.stack(losses)`; of one tensor: the tensor itself."""
    if len(call.args) != 1 or any(keyword.arg not in ("dtype", "device", "requires_grad") for keyword in call.keywords):
        return []
    torch = script.module_name("torch")
    argument = call.args[0]
    word = _stacked_word(script, call)
    suffix = "".join(f".to({script.segment(k.value)})" for k in call.keywords if k.arg in ("dtype", "device"))
    if word != "stack" or torch is None:
        bare = not suffix and isinstance(script.parent(call), (ast.Assign, ast.Return))
        return [script.replace(call, f"{script.segment(argument) if bare else script.closed(argument)}{suffix}")] if word else []
    return [script.replace(call, f"{torch}.stack({script.segment(argument)}){suffix}")]


def _stacked_word(script: Script, call: ast.Call) -> str:
    """`stack` for a list of tensors, the text of the argument for a single one, "" where it cannot be told."""
    argument = call.args[0]
    if isinstance(argument, (ast.List, ast.ListComp, ast.Tuple)) or (isinstance(argument, ast.Call) and called(argument) in ("list", "tuple")):
        nested = isinstance(argument, ast.List) and any(isinstance(item, (ast.List, ast.Constant)) for item in argument.elts)
        return "" if nested else "stack"
    name = path_of(argument)
    if name and _is_list_name(script, call, name):
        return "stack"
    return script.segment(argument) if "\n" not in script.segment(argument) else ""


def _is_list_name(script: Script, call: ast.AST, name: str) -> bool:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and any(path_of(target) == name for target in node.targets):
            if isinstance(node.value, (ast.List, ast.ListComp)) or called(node.value) == "list":
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and path_of(node.func.value) == name:
            return True
    return False


# -- values that went through Python --------------------------------------------------------------


def _stays_tensor(scripts: Scripts, script: Script, node: ast.AST, lost: LostGradient) -> tuple[list[Edit], str] | None:
    """`.item()` and the constructor that makes a tensor of it again, both left out."""
    edits: list[Edit] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int") and len(node.args) == 1:
        edits += [script.replace(node, script.closed(node.args[0]))]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in ("item", "tolist", "numpy"):
        inner: ast.expr = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and called(inner) in ("item", "tolist", "numpy", "detach", "cpu"):
            inner = inner.func.value
        if _closing_bracket(script, inner, node) and isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            alone = isinstance(script.parent(node), (ast.Call, ast.Assign, ast.Return, ast.keyword, ast.List))
            edits += [script.replace(node, script.segment(inner) if alone else script.closed(inner))]
        else:
            edits += [script.edit(script.end(inner), script.end(node), "")]
    else:
        return None
    wrapping = _rewrapping(scripts, script, node, lost)
    if wrapping is None or called(node) == "numpy" and _wants_arrays(scripts, script, node, wrapping):
        return None
    maker, call = wrapping
    if any(inner is node for inner in ast.walk(call)):
        return _unwrapped_inside(script, call, node, edits)
    kept = _kept_tensor(maker, call) if called(call) in _MAKERS else [maker.replace(call, maker.closed(call.args[0]))]
    if not kept or _overlap(edits, kept):
        return None
    spelled = ast.unparse(node.func) if isinstance(node.func, ast.Name) else f".{node.func.attr}"
    return [*edits, *kept], f"Leave out `{spelled}()` and `{ast.unparse(call.func)}`: the value stays a tensor with its history"


def _wants_arrays(scripts: Scripts, script: Script, node: ast.AST, wrapping: tuple[Script, ast.Call]) -> bool:
    """On its way the value meets a function of numpy's, or one of the program's that uses numpy, or another array: those want arrays."""
    maker, constructor = wrapping
    if any(isinstance(call, ast.Call) and called(call) == "numpy" and call is not node for call in script.own_nodes(script.scope_of(node))):
        return True
    own = [other for other in (script.parent(node), *constructor.args) if other is not None]
    for place, top in ((script, script.statement_of(node)), *((maker, argument) for argument in own)):
        for call in ast.walk(top) if top is not None else ():
            if not isinstance(call, ast.Call):
                continue
            if path_of(call.func).split(".")[0] == (place.module_name("numpy") or "?"):
                return True
            function = next((item for item in ast.walk(place.tree) if isinstance(item, Function) and item.name == called(call)), None)
            if function is not None and place.module_name("numpy") in {path_of(item) for item in ast.walk(function)} - {""}:
                return True
    return False


def _unwrapped_inside(script: Script, call: ast.Call, node: ast.AST, edits: list[Edit]) -> tuple[list[Edit], str] | None:
    """`torch.tensor([v.item() for v in values])` → `torch.stack([v for v in values])`, in one edit."""
    argument, torch = call.args[0], script.module_name("torch")
    word = _stacked_word(script, call)
    if len(edits) != 1 or not word or torch is None or any(keyword.arg not in ("dtype", "device", "requires_grad") for keyword in call.keywords):
        return None
    span = edits[0].span
    inside = script.between(script.start(argument), (span.line, span.column)) + edits[0].replacement
    inside += script.between((span.end_line, span.end_column), script.end(argument))
    text = f"{torch}.stack({inside})" if word == "stack" else f"({inside})"
    text += "".join(f".to({script.segment(k.value)})" for k in call.keywords if k.arg in ("dtype", "device"))
    return [script.replace(call, text)], f"{'`torch.stack`' if word == 'stack' else 'The tensor itself'} keeps the history; `{ast.unparse(call.func)}` copies bare numbers"


def _overlap(one: list[Edit], other: list[Edit]) -> bool:
    every = [*one, *other]
    return len(without_overlaps((edit,) for edit in every)) != len(every)


def _rewrapping(scripts: Scripts, script: Script, node: ast.AST, lost: LostGradient) -> tuple[Script, ast.Call] | None:
    """The one `torch.tensor(…)` or `torch.from_numpy(…)` in the same function through which the values came back."""
    scope = script.scope_of(node)
    calls = [
        other
        for other in script.own_nodes(scope)
        if isinstance(other, ast.Call) and called(other) in (*_MAKERS, "from_numpy") and len(other.args) == 1 and names_in(other.args[0])
    ]
    module = script.module_name("torch")
    calls = [call for call in calls if isinstance(call.func, ast.Attribute) and path_of(call.func.value) == module]
    around = [call for call in calls if any(inner is node for inner in ast.walk(call))]
    calls = around or calls
    if len(calls) != 1:
        return None
    if _goes_through_numpy(script, scope, node):
        return None
    return script, calls[0]


def _goes_through_numpy(script: Script, scope: ast.AST, node: ast.AST) -> bool:
    """The values are worked on by numpy functions in between, which take no tensor that requires grad."""
    numpy = script.module_name("numpy")
    statement = script.statement_of(node)
    if numpy is None or statement is None:
        return False
    names = names_in(statement, ast.Store) | {numpy}
    for other in script.own_nodes(scope):
        if isinstance(other, ast.stmt) and not hasattr(other, "body") and numpy in names_in(other):
            if other is statement or names_in(other, ast.Load) & (names - {numpy}):
                return True
    return False
