"""A loss computed with numpy: the same computation with torch, which keeps the history.

Only functions that mean the same in both, with arguments that both take; one other numpy call on the way, and nothing
is offered.
"""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Script, called, names_in, path_of
from torchsleuth.model import Edit

_SAME = {
    "sqrt", "exp", "log", "log1p", "expm1", "log2", "log10", "sin", "cos", "tan", "tanh", "sinh", "cosh", "abs", "square", "mean", "sum",
    "prod", "maximum", "minimum", "where", "stack", "concatenate", "exp2", "sign", "floor", "ceil", "reshape", "matmul", "multiply",
    "subtract", "add", "divide", "negative", "arctan", "arcsin", "arccos", "cumsum",
}  # fmt: skip
_RENAMED = {"clip": "clamp", "power": "pow", "absolute": "abs", "fabs": "abs", "expand_dims": "unsqueeze", "max": "amax", "min": "amin", "amax": "amax", "amin": "amin"}
_KEYWORDS = {"axis", "keepdims", "keepdim"}
_LINKS = ("numpy", "detach", "cpu")
_BACK = ("tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor")


def with_torch(script: Script, node: ast.AST) -> tuple[list[Edit], str] | None:
    """The function around a `.numpy()` (or what it is the start of) rewritten without numpy; None where that is not sure."""
    scope, numpy, torch = script.scope_of(node), script.module_name("numpy"), script.module_name("torch")
    start = script.statement_of(node)
    if torch is None or start is None:
        return None
    statements = sorted(
        (item for item in script.own_nodes(scope) if isinstance(item, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr))), key=lambda item: item.lineno
    )
    tainted: set[str] = set()
    touched: list[ast.stmt] = []
    for statement in statements:
        reads = names_in(statement, ast.Load) & tainted
        if isinstance(statement, ast.AugAssign):
            reads |= names_in(statement.target) & tainted
        if statement is start or reads:
            touched.append(statement)
            if not _comes_back(statement, torch):
                tainted |= names_in(statement, ast.Store)
    touched += _beside(script, scope, statements, touched, tainted)
    if any(isinstance(statement, (ast.AugAssign, ast.Expr)) or script.loops_around(statement) for statement in touched):
        return None
    edits: list[Edit] = []
    for statement in touched:
        found = _rewritten(script, statement, numpy, torch)
        if found is None:
            return None
        edits += found
    return (edits, f"Compute it with `{torch}` instead of `{numpy or 'numpy'}`: the history stays") if edits else None


def _beside(script: Script, scope: ast.AST, statements: list[ast.stmt], touched: list[ast.stmt], tainted: set[str]) -> list[ast.stmt]:
    """`target = target.numpy()`, whose result only meets the values that stay tensors now: it must stay one, too."""
    others = []
    for statement in statements:
        value = getattr(statement, "value", None)
        if statement in touched or not isinstance(statement, ast.Assign) or not isinstance(value, ast.Call) or called(value) != "numpy" or value.args:
            continue
        names = names_in(statement, ast.Store)
        uses = [node for node in script.own_nodes(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names]
        uses = [node for node in uses if script.statement_of(node) is not statement]
        if uses and not names & tainted and all(script.statement_of(node) in touched for node in uses):
            others.append(statement)
    return others


def _comes_back(statement: ast.stmt, torch: str) -> bool:
    value = getattr(statement, "value", None)
    return any(isinstance(node, ast.Call) and called(node) in _BACK and path_of(node.func).split(".")[0] == torch for node in ast.walk(value or statement))


def _rewritten(script: Script, statement: ast.stmt, numpy: str, torch: str) -> list[Edit] | None:
    edits: list[Edit] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == numpy:
            name = node.func.attr
            if name not in _SAME and name not in _RENAMED:
                return None
            if any(keyword.arg not in _KEYWORDS for keyword in node.keywords) or (name in _RENAMED and node.keywords):
                return None
            if not any(isinstance(inner, (ast.Name, ast.Call)) for argument in node.args for inner in ast.walk(argument)):
                return None  # of plain numbers: torch's functions take tensors
            if name in ("maximum", "minimum", "where") and any(isinstance(argument, ast.Constant) for argument in node.args[:2]) and name != "where":
                return None
            edits.append(script.replace(node.func, f"{torch}.{_RENAMED.get(name, name)}"))
            edits += [script.edit(*_keyword(script, k), f"keepdim={script.segment(k.value)}") for k in node.keywords if k.arg == "keepdims"]
        elif isinstance(node, ast.Attribute) and path_of(node.value) == numpy and not isinstance(script.parent(node), ast.Call):
            if node.attr not in ("pi", "e", "inf"):
                return None
        elif isinstance(node, ast.Attribute) and path_of(node).startswith(f"{numpy}.") and isinstance(script.parent(node), ast.Call) and path_of(node).count(".") > 1:
            return None  # `np.linalg.norm` and the like
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LINKS and not node.args:
            line, column = script.end(node.func.value)
            between = script.between((line, column), script.start_of_name(node.func))
            if "\n" in between or "#" in between:
                return None
            # The bracket around `(p - t).detach()` stays.
            edits.append(script.edit((line, column + between.rindex(")") + 1 if ")" in between else column), script.end(node), ""))
        elif isinstance(node, ast.Call) and called(node) in _BACK and path_of(node.func).split(".")[0] == torch:
            if len(node.args) != 1 or any(keyword.arg != "requires_grad" for keyword in node.keywords):
                return None
            opening, closing = script.between(script.end(node.func), script.start(node.args[0])), script.between(script.end(node.args[0]), script.end(node))
            bare = isinstance(node.args[0], (ast.Name, ast.Call, ast.Attribute, ast.Subscript)) or isinstance(script.parent(node), (ast.Assign, ast.Return))
            if opening != "(" or ")" not in closing:
                return None
            # Of `torch.tensor(1 - score).mean()` the bracket stays.
            edits.append(script.edit(script.start(node), script.start(node.args[0]), "" if bare else "("))
            edits.append(script.edit(script.end(node.args[0]), script.end(node), "" if bare else ")"))
    return edits


def _keyword(script: Script, keyword: ast.keyword) -> tuple[tuple[int, int], tuple[int, int]]:
    line, column = script.start(keyword.value)
    return (line, column - len(f"{keyword.arg}=")), script.end(keyword.value)
