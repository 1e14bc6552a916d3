"""A call with `out=` that autograd would have to record: its result bound, or assigned, instead."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.outofplace import without_out
from torchsleuth.fixes.script import Scripts, users
from torchsleuth.model import Diagnosis, Fix


class OutArgumentFixer(Fixer):
    rule = "out-argument"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        operation = evidence.operation
        found = scripts.node_at(users(operation.place)) if operation is not None else None
        script, call = found if found is not None else (None, None)
        out = next((keyword for keyword in call.keywords if keyword.arg == "out"), None) if isinstance(call, ast.Call) else None
        statement = script.statement_of(call) if out is not None else None
        if statement is None:
            return []
        rewrite = without_out(script, statement, call, out)
        if rewrite is None:
            return []
        meaning = f"The result is then no longer seen by {rewrite.seen_by}." if rewrite.seen_by else ""
        return [scripts.fix(rewrite.title, rewrite.edits, meaning, safe=not rewrite.seen_by)]
