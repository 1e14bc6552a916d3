"""Where an argument of a call of the program's was made, by the source alone: for what was made out of torch's sight (by NumPy, say)."""

from __future__ import annotations

import ast
import os

from torchsleuth.auditor.inputs.bysyntax import DEPTH, Scope, followed
from torchsleuth.auditor.inputs.containers import Path
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import syntax_of


def given(call: Site | None, path: Path) -> Site | None:
    """`path`: positional (0) or named (1), which one, and the keys that lead on inside of it."""
    filename = os.path.abspath(call.span.file) if call is not None else ""
    tree = syntax_of(filename) if call is not None else None
    if call is None or tree is None or not all(isinstance(key, (str, int)) for key in path[2:]):
        return None
    scope: ast.AST = tree
    for one in ast.walk(tree):  # outside in
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.lineno <= call.span.line <= (one.end_lineno or 0):
            scope = one
    calls = [n for n in ast.walk(scope) if isinstance(n, ast.Call) and (n.lineno, n.end_lineno) == (call.span.line, call.span.end_line)]
    node = next((n for n in calls if (n.col_offset + 1, (n.end_col_offset or 0) + 1) == (call.span.column, call.span.end_column)), None)
    if node is None or any(isinstance(a, ast.Starred) for a in node.args):
        return None
    if path[0] == 0:
        argument = node.args[path[1]] if path[1] < len(node.args) else None  # type: ignore[index,operator]
    else:
        argument = next((k.value for k in node.keywords if k.arg == path[1]), None)
    made = followed(argument, Scope(scope, filename, call.function, {}), tuple(path[2:]), DEPTH) if argument is not None else None  # type: ignore[arg-type]
    return made[1].site(made[0]) if made is not None and made[0] is not argument else None
