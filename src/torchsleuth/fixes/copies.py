"""`.clone()` at the place that suffices: where an operation reads, or returns, the tensor that it saves for backward."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import StaleSave
from torchsleuth.fixes.aliases import VIEWS
from torchsleuth.fixes.script import Script, Scripts, called, path_of, users
from torchsleuth.model import Edit

_SLOTS = {"self": 0, "input": 0, "mat1": 0, "other": 1, "mat2": 1, "exponent": 1, "target": 1, "vec": 1, "weight": 1}


def cloned_saves(scripts: Scripts, saves: list[StaleSave], how: str = ".clone()") -> tuple[list[Edit], list[str]] | None:
    """Edits after which none of these saves holds the written memory, and the expressions that are cloned."""
    edits: list[Edit] = []
    names: list[str] = []
    for save in saves:
        place = save.place
        if place is not None and place.in_library:
            place = place.via
        script = scripts.get(place)
        node = script.node_at(place.span) if script is not None else None
        if script is None or not isinstance(node, ast.expr):
            return None
        if save.is_result and isinstance(script.parent(node), ast.Expr):
            return None  # a write whose result is thrown away: a copy of it would help nobody
        if any(users(site.place).span == place.span for site in save.writes):
            return None  # saved and overwritten inside one call, of a module for example: no copy can be put in between
        if save.is_result and (save.several or _is_unpacked(script, node)):
            after = _copied_after(script, node, save)
            if after is None:
                return None
            edits += after
            names.append(save.tensor.name)
            continue
        if save.is_result and save.place.in_library and not _is_bound_to(script, node, save.tensor.name):
            return None  # what the library's function returns may only hold the tensor: an object, a dictionary
        found = [node] if save.is_result else _definition(script, node, save) or read_operands(script, node, save)
        if not found or any(isinstance(item, ast.Starred) for item in found):
            return None
        for item in found:
            edits += script.wrapped(item, how)
            names.append(script.segment(item))
    return list(dict.fromkeys(edits)), list(dict.fromkeys(names))


def _is_unpacked(script: Script, node: ast.expr) -> bool:
    """`q, r = decompose(x)`: the call gives several tensors, and a tuple cannot be cloned."""
    statement = script.parent(node)
    return isinstance(statement, ast.Assign) and any(isinstance(target, (ast.Tuple, ast.List)) for target in statement.targets)


def _is_bound_to(script: Script, node: ast.expr, name: str) -> bool:
    statement = script.parent(node)
    return isinstance(statement, ast.Assign) and name in {path_of(target) for target in statement.targets} - {""}


def _copied_after(script: Script, node: ast.expr, save: StaleSave) -> list[Edit] | None:
    """`q = q.clone()` behind the statement that unpacks it."""
    statement, name = script.parent(node), save.tensor.name
    if not isinstance(statement, ast.Assign):
        return None
    bound = {path_of(item) for target in statement.targets for item in getattr(target, "elts", ())}
    return script.after(statement, f"{name} = {name}.clone()") if name.isidentifier() and name in bound else None


def read_operands(script: Script, node: ast.expr, save: StaleSave) -> list[ast.expr]:
    """The parts of an expression through which it reads the saved tensor."""
    named = () if save.named_in else (save.tensor.name,)  # what another function calls it may be another tensor's name here
    wanted = [name for name in (*named, save.tensor.view_of, *_written(save)) if name]
    for name in wanted:
        found = occurrences(script, node, name)
        if found:
            return found
    # `model.scale` is `self.scale` inside the module.
    for name in wanted:
        if "." in name:
            found = occurrences(script, node, f"self.{name.rsplit('.', 1)[1]}")
            if found:
                return found
    by_slot = _by_slot(node, save.saved, save.operation)
    return [by_slot] if by_slot is not None else []


def _written(save: StaleSave) -> list[str]:
    """What the writes go into, by their own text: `outputs` for `outputs[:, t] = h`."""
    found = []
    for site in save.writes:
        root = re.match(r"[A-Za-z_][\w.]*", site.place.source)
        if root and site.operation == "__setitem__":
            found.append(root[0])
    return found


def occurrences(script: Script, node: ast.expr, name: str) -> list[ast.expr]:
    """Names, attributes and views of `name` that are read in an expression, each with the views taken of it there."""
    base = "" if "[" in name else name  # `hs[0]` may be an element of a list, and `hs` is then no tensor
    found: list[ast.expr] = []

    def visit(item: ast.AST) -> None:
        if isinstance(item, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)) and item is not node:
            for child in ast.iter_child_nodes(item):
                visit(child)
            return
        if isinstance(item, ast.expr) and _is_view_of(script, item, name, base):
            found.append(item)
            for child in ast.iter_child_nodes(item):
                if isinstance(child, (ast.Slice, ast.Tuple)) or (isinstance(item, ast.Subscript) and child is item.slice):
                    visit(child)
            return
        for child in ast.iter_child_nodes(item):
            visit(child)

    visit(node)
    return found


def _is_view_of(script: Script, node: ast.expr, name: str, base: str) -> bool:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    if ast.unparse(node) == name:
        return True
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "real", "imag"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS - {"detach", "data"}:
            node = node.func.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and re.search(r"[^_]_$", node.func.attr):
            node = node.func.value  # an in-place method returns what it wrote into
        else:
            break
    return path_of(node) == base != ""


def _by_slot(node: ast.expr, slot: str, operation: str) -> ast.expr | None:
    position = _SLOTS.get(slot)
    if position is None:
        return None
    if isinstance(node, ast.BinOp):
        return (node.left, node.right)[position]
    if isinstance(node, ast.UnaryOp):
        return node.operand if position == 0 else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        space = path_of(node.func.value).split(".")[0] in ("torch", "F", "functional", "nn")
        operands = [*([] if space else [node.func.value]), *node.args]
        if not space and called(node).rstrip("_") != operation.rstrip("_"):
            return None  # a module or a helper: its arguments need not be the operation's
        return operands[position] if position < len(operands) else None
    return None


def _definition(script: Script, node: ast.expr, save: StaleSave) -> list[ast.expr]:
    """Where a view is read several times in the saving expression, the one place that makes it: `left = table[:, 0]`."""
    name = save.tensor.name
    if not name.isidentifier() or len(occurrences(script, node, name)) < 2:
        return []
    scope = script.scope_of(node)
    bound = [
        item
        for item in script.own_nodes(scope)
        if isinstance(item, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in item.targets)
    ]
    if len(bound) != 1 or len(bound[0].targets) != 1 or bound[0].lineno > node.lineno:
        return []
    value = bound[0].value
    view = isinstance(value, ast.Subscript) or (isinstance(value, ast.Call) and called(value) in VIEWS)
    if not view or any(isinstance(item, ast.AugAssign) and path_of(item.target) == name for item in script.own_nodes(scope)):
        return []
    return [value]
