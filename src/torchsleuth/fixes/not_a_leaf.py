"""A result given to an optimizer: a leaf made of it, where its history begins anyway."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, path_of, users
from torchsleuth.model import Diagnosis, Fix


class NotALeafFixer(Fixer):
    rule = "not-a-leaf"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.refused_result
        if found is None or found.made is None:
            return []
        at = scripts.node_at(users(found.made))
        script, node = at if at is not None else (None, None)
        statement = script.parent(node) if script is not None else None
        if found.wanted != "optimize" or found.leaves or not isinstance(statement, ast.Assign) or statement.value is not node or not path_of(statement.targets[0]):
            return []
        title = f"Make a leaf of `{path_of(statement.targets[0])}`: `.detach().requires_grad_()`."
        return [scripts.fix(title, script.wrapped(node, ".detach().requires_grad_()"))]
