"""Operands on two devices: the data is brought to where the parameters are."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, text_of
from torchsleuth.fixes.script import Scripts, path_of
from torchsleuth.model import Diagnosis, Fix


class DeviceMismatchFixer(Fixer):
    rule = "device-mismatch"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or len({operand.tensor.device for operand in operation.operands}) != 2:
            return []
        fixed = [operand for operand in operation.operands if operand.tensor.kind in ("parameter", "buffer")]
        homes = {operand.tensor.device for operand in fixed}
        if len(homes) > 1:
            return []
        if homes:
            home = next(iter(homes))
        else:
            # Two plain tensors: the one on the accelerator is where the work is done.
            home = next((o.tensor.device for o in operation.operands if o.tensor.device != "cpu"), "")
        if not home or home == "meta":
            return []
        away = [operand for operand in failed.operands if operand.tensor.device != home and operand.tensor.kind not in ("parameter", "buffer")]
        if len(away) != 1:
            return []
        there = next((text_of(o) for o in failed.operands if o.tensor.device == home and text_of(o)), "")
        if there:
            suffix = f".to({there}.device)"
        elif isinstance(failed.call, ast.Call) and path_of(failed.call.func) and fixed:
            suffix = f".to(next({path_of(failed.call.func)}.parameters()).device)"
        else:
            suffix = f'.to("{home}")'
        return [failed.suffixed(away[0], suffix, f"Bring {away[0].called} to {home}: `{suffix}`.")]
