"""What the syntax of a class says about its objects: the classes it is made of, its fields, its constructor."""

from __future__ import annotations

import ast

from torchsleuth import source
from torchsleuth.capture.imported import definition_of, imported_bodies

_MOST_BASES = 8


def lineage(filename: str, owner: ast.ClassDef) -> list[tuple[str, ast.ClassDef]]:
    """A class and the classes of the program that it is made of, the nearest first."""
    found, pending = [(filename, owner)], [(filename, base) for base in owner.bases]
    while pending and len(found) < _MOST_BASES:
        home, base = pending.pop(0)
        kind = definition_of(home, base)
        if kind is not None and isinstance(kind[1], ast.ClassDef) and all(kind[1] is not known for _, known in found):
            found.append((kind[0], kind[1]))
            pending = [*((kind[0], further) for further in kind[1].bases), *pending]
    return found


def method_of(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == name and item.args.args), None)


def base_call(method: ast.FunctionDef) -> ast.Call | None:
    """`super().__init__(width)` in a constructor, or `Base.__init__(self, width)` as if it were written so."""
    for call in ast.walk(method):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method.name:
            if isinstance(call.func.value, ast.Call) and getattr(call.func.value.func, "id", "") == "super":
                return call
            if call.args and getattr(call.args[0], "id", "") == method.args.args[0].arg:
                return ast.copy_location(ast.Call(call.func, call.args[1:], call.keywords), call)
    return None


def fields_of(owner: ast.ClassDef) -> list[str]:
    """Of a dataclass or a named tuple."""
    return [item.target.id for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]


def is_tuple(owner: ast.ClassDef) -> bool:
    return any(_word(base) == "NamedTuple" for base in owner.bases)


def is_enumeration(owner: ast.ClassDef) -> bool:
    return any(_word(base) in ("Enum", "IntEnum", "StrEnum") for base in owner.bases)


def tuple_fields(filename: str, name: ast.AST) -> list[str]:
    """The fields in `Step = namedtuple("Step", "state action")`, for `Step`, here or where it is imported from."""
    tree = source.tree_of(filename)
    if not isinstance(name, ast.Name) or tree is None:
        return []
    for _, body in [(filename, tree.body), *imported_bodies(tree, name.id)]:
        for statement in body:
            made = statement.value if isinstance(statement, ast.Assign) and [getattr(t, "id", "") for t in statement.targets] == [name.id] else None
            if isinstance(made, ast.Call) and _word(made.func) == "namedtuple" and len(made.args) > 1:
                try:
                    given = ast.literal_eval(made.args[1])
                except ValueError:
                    return []
                return given.replace(",", " ").split() if isinstance(given, str) else list(given)
    return []


def _word(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))
