"""What an import statement of the program's stands for: the program's own modules, as they are loaded."""

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
