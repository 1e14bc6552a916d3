"""What the syntax of a function says: where it stands in its file, which names it binds to what, and what it returns."""

from __future__ import annotations

import ast
import functools
import inspect
import types
import typing

from torchsleuth import source


def function_node(code: types.CodeType) -> ast.AST | None:
    return _function_node_in(code.co_filename, code)


@functools.lru_cache(maxsize=1024)
def _function_node_in(filename: str, code: types.CodeType) -> ast.AST | None:
    """The file is part of the key: code objects of equal content are equal, whichever file they come from."""
    tree = source.tree_of(filename)
    if tree is None:
        return None
    if code.co_name == "<module>" or not code.co_flags & inspect.CO_NEWLOCALS:
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            return node
    return None


def bindings_in(code: types.CodeType) -> tuple[tuple[str, int], ...]:
    """(name, line) of every binding in a function."""
    scope = function_node(code)
    return tuple((name, statement.lineno) for name, statement, _, _ in bindings(scope)) if scope is not None else ()


@functools.lru_cache(maxsize=512)
def bindings(scope: ast.AST) -> tuple[tuple[str, ast.AST, ast.AST, str], ...]:
    """(name, statement, expression, kind) for every binding in a function, not in the functions nested in it."""
    found: list[tuple[str, ast.AST, ast.AST, str]] = []

    def add(target: ast.AST, statement: ast.AST, value: ast.AST, kind: str) -> None:
        if isinstance(target, ast.Name):
            found.append((target.id, statement, value, kind))
        elif isinstance(target, (ast.Tuple, ast.List)):
            several = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for position, element in enumerate(target.elts):
                add(element, statement, value.elts[position] if several else value, kind if several else f"{kind}-part")
        elif isinstance(target, ast.Starred):
            add(target.value, statement, value, f"{kind}-part")

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(child, ast.Assign):
                for target in child.targets:
                    add(target, child, child.value, "assign")
            elif isinstance(child, ast.AnnAssign) and child.value is not None:
                add(child.target, child, child.value, "assign")
            elif isinstance(child, ast.AugAssign):
                add(child.target, child, child, "augmented")
            elif isinstance(child, (ast.For, ast.AsyncFor)):
                add(child.target, child, child.iter, "loop")
            elif isinstance(child, ast.NamedExpr):
                add(child.target, child, child.value, "assign")
            elif isinstance(child, ast.With):
                for item in child.items:
                    if item.optional_vars is not None:
                        add(item.optional_vars, child, item.context_expr, "with")
            visit(child)

    visit(scope)
    return tuple(found)


def returns_of(scope: ast.AST) -> typing.Iterator[ast.Return]:
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(child, ast.Return):
            yield child
        yield from returns_of(child)
