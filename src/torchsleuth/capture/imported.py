"""What a name of the program's stands for: its own modules, as they are loaded, and the functions and classes that they define."""

from __future__ import annotations

import ast
import sys
import typing

from torchsleuth import source
from torchsleuth.origin import Origin, origin_of_file


def module_tree(name: str, level: int = 0) -> tuple[str, ast.Module] | None:
    """The program's own module of this name; a relative one where only one loaded module can be meant."""
    modules = [sys.modules.get(name)] if not level else [module for key, module in list(sys.modules.items()) if key.endswith("." + name)]
    files = {filename for module in modules if (filename := getattr(module, "__file__", None)) and origin_of_file(filename) is Origin.USER}
    filename = files.pop() if len(files) == 1 else None
    tree = source.tree_of(filename) if filename is not None else None
    return (filename, tree) if filename is not None and tree is not None else None


def module_named(filename: str, name: str) -> tuple[str, ast.Module] | None:
    tree = source.tree_of(filename)
    for statement in ast.walk(tree) if tree is not None else ():
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return module_tree(alias.name)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return module_tree(f"{statement.module}.{alias.name}" if statement.module else alias.name, statement.level)
    return None


def imported_bodies(tree: ast.Module | None, name: str) -> typing.Iterator[tuple[str, list[ast.stmt]]]:
    for statement in ast.walk(tree) if tree is not None else ():
        if isinstance(statement, ast.ImportFrom) and statement.module and any(alias.name == name and not alias.asname for alias in statement.names):
            module = module_tree(statement.module, statement.level)
            if module is not None:
                yield module[0], module[1].body


def definition_of(filename: str, name: ast.AST) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
    """The one function or class that a name stands for, in this file or the one it was imported from."""
    tree = source.tree_of(filename)
    if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):  # `prepare.load()`
        module = module_named(filename, name.value.id)
        word, homes = name.attr, [(module[0], module[1].body)] if module is not None else []
    elif isinstance(name, ast.Name):
        word, homes = name.id, [*([(filename, tree.body)] if tree is not None else ()), *imported_bodies(tree, name.id)]
    else:
        return None
    for home, body in homes:
        found = [item for item in body if isinstance(item, (ast.ClassDef, ast.FunctionDef)) and item.name == word]
        if found:
            return (home, found[0]) if len(found) == 1 else None
    return None
