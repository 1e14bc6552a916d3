"""Operands on two devices: the data is brought to where the parameters are."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence, Place
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
        unowned = next((operand.kept for operand in operation.operands if operand.kept is not None and operand.kept.operation in ("layers", "new layer")), None)
        if unowned is not None:
            return [as_registered(unowned.place, scripts)] if unowned.operation == "layers" else []
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
        return [as_buffer(away[0].kept.place, scripts) if away[0].kept is not None else None, failed.suffixed(away[0], suffix, f"Bring {away[0].called} to {home}: `{suffix}`.")]


def as_registered(value: Place, scripts: Scripts) -> Fix | None:
    """`self.heads = [nn.Linear(…), …]` as `nn.ModuleList([…])`: then the module owns its layers."""
    found = scripts.node_at(value) if not value.in_library else None
    if found is None:
        return None
    script, node = found
    kind = "ModuleList" if isinstance(node, (ast.List, ast.ListComp)) else "ModuleDict" if isinstance(node, (ast.Dict, ast.DictComp)) else ""
    if isinstance(node, ast.Dict) and not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
        return None  # its names must be text
    home = script.module_name("torch.nn") or (f"{torch}.nn" if (torch := script.module_name("torch")) else None)
    if not kind or home is None:
        return None
    edits = [script.insert(script.start(node), f"{home}.{kind}("), script.insert(script.end(node), ")")]
    meaning = "They are then moved, trained and saved with the model; before, an optimizer made of `parameters()` did not have them."
    return scripts.fix(f"Give the layers to the model: `{home}.{kind}`.", edits, meaning, safe=False)


def as_buffer(value: Place, scripts: Scripts) -> Fix | None:
    """`self.table = value` of a module as `self.register_buffer("table", value)`: then it goes where the module goes."""
    found = scripts.node_at(value) if not value.in_library else None
    statement = found[0].statement_of(found[1]) if found is not None else None
    if found is None or not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Attribute):
        return None
    script, target = found[0], statement.targets[0]
    if not isinstance(target.value, ast.Name):
        return None
    line, column = script.end(target)
    between = script.between((line, column), script.start(statement.value))  # ` = `, and what opens a bracket around the value
    equals = re.match(r" *= *", between)
    if equals is None:
        return None
    edits = [
        script.edit(script.start(target), (line, column + equals.end()), f'{target.value.id}.register_buffer("{target.attr}", '),
        script.insert(script.end(statement), ", persistent=False)"),
    ]
    meaning = "`.to()` of the module then moves it; `persistent=False` leaves it out of checkpoints, in which it was not before."
    return scripts.fix(f'Make `{target.attr}` a buffer: `{target.value.id}.register_buffer("{target.attr}", ...)`.', edits, meaning)
