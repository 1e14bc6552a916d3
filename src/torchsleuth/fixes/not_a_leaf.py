"""A result where a leaf is wanted: a leaf made of it where its history begins anyway, or a tensor without its history."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, RefusedResult
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called, path_of, users
from torchsleuth.model import Diagnosis, Fix


class NotALeafFixer(Fixer):
    rule = "not-a-leaf"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.refused_result
        if found is not None and found.wanted == "flag" and not found.asked:
            return [_detached(scripts, found)]
        if found is None or found.made is None:
            return []
        at = scripts.node_at(users(found.made))
        script, node = at if at is not None else (None, None)
        statement = script.parent(node) if script is not None else None
        if found.wanted != "optimize" or found.leaves or not isinstance(statement, ast.Assign) or statement.value is not node or not path_of(statement.targets[0]):
            return []
        title = f"Make a leaf of `{path_of(statement.targets[0])}`: `.detach().requires_grad_()`."
        return [scripts.fix(title, script.wrapped(node, ".detach().requires_grad_()"))]


def _detached(scripts: Scripts, found: RefusedResult) -> Fix | None:
    """`x.requires_grad = False` → `x = x.detach()`: the flag belongs to leaves, a result is cut off from its history."""
    script = scripts.get(found.use)
    statement = script.statement_at(found.use.span) if script is not None else None
    target = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Attribute):
        target = path_of(statement.targets[0].value) if statement.targets[0].attr == "requires_grad" else None
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and called(statement.value) == "requires_grad_":
        target = path_of(statement.value.func.value) if isinstance(statement.value.func, ast.Attribute) else None
    if not target:
        return None
    line = f"{target} = {target}.detach()"
    return scripts.fix(f"Cut it off from its history instead: `{line}`.", [script.replace(statement, line)], "Nothing that it was computed from is trained through it then.", safe=False)
