"""Memory of its own for what is written in place, or for what is read while it is written."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.forward.overlapping_write import stretched, written


class OverlappingWriteFixer(Fixer):
    rule = "overlapping-write"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.in_library or not operation.operands:
            return []
        if "more than one element" not in failed.message:
            if isinstance(failed.call, ast.AugAssign) and failed.script is not None:
                read = failed.script.segment(failed.call.value)
                return [scripts.fix(f"Read from a copy: `.clone()` on `{read}`.", failed.script.wrapped(failed.call.value, ".clone()"))]
            others = [operand for operand in operation.operands if operand is not written(operation)]
            return [failed.suffixed(others[0], ".clone()", f"Read from a copy: `.clone()` on {others[0].called}.")] if len(others) == 1 else []
        made = stretched(operation)
        found = scripts.node_at(made.place) if made is not None else None
        if found is None or not isinstance(found[1], ast.Call) or called(found[1]) not in ("expand", "expand_as", "broadcast_to"):
            return []
        return [scripts.fix("Give it memory of its own: `.clone()` where it is stretched.", found[0].wrapped(found[1], ".clone()"))]
