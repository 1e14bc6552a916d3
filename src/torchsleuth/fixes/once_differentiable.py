"""A second derivative through a marked backward: the mark taken off, where that consists of torch operations."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix


class OnceDifferentiableFixer(Fixer):
    rule = "once-differentiable"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.second_derivative
        at = scripts.node_at(found.mark) if found is not None and found.mark is not None else None
        function = at[0].parent(at[1]) if at is not None else None
        if not isinstance(function, ast.FunctionDef):
            return []
        script, mark = at
        if any(isinstance(node, ast.Attribute) and node.attr in ("numpy", "data", "detach", "item") for node in ast.walk(function)):
            return []  # its result would have no history, or a wrong one, all the same
        line = mark.lineno
        edits = [script.edit((line, 1), (line + 1, 1), "")]
        meaning = "What its backward does is then recorded, and must be right for a second derivative, too."
        return [scripts.fix(f"Take `@once_differentiable` off `{found.function}.backward`.", edits, meaning, safe=False)]
