"""Class numbers outside the classes: counted from 1, or -1 for what is to be ignored."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.forward.resizing import enlarged
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix


class ClassOutOfRangeFixer(Fixer):
    rule = "class-out-of-range"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        if failed.operation is None:
            return []
        target = next((o for o in failed.operation.operands if o.values is not None and o.values.bad), None)
        if target is None or target.values is None:
            return []
        values = target.values
        mine = target if not failed.in_library else failed.operand(target.argument)
        # One number that is no class: -1 or another negative one, and the 255 of segmentation masks.
        if len(values.distinct) == 1 and (values.distinct[0] < 0 or values.distinct[0] == 255 > values.high + 1) and failed.operation.name != "one_hot":
            return [_ignored(failed, int(values.distinct[0]))]
        if values.counts_from_one and mine is not None:
            found = failed.node_of(mine)
            if found is None:
                return []
            script, node = found
            bracketed = f"{script.segment(node)} - 1" if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({script.segment(node)}) - 1"
            parent = script.parent(node)
            if not isinstance(parent, (ast.Call, ast.keyword)) or (isinstance(parent, ast.Call) and parent.func is node):
                bracketed = f"({bracketed})"
            meaning = f"Class 1 of {mine.called} then is the first of the scores, number 0."
            return [scripts.fix(f"Count from 0: `{bracketed}`.", [script.replace(node, bracketed)], meaning, safe=False)]
        return [_more_classes(failed, int(values.maximum) + 1)] if values.minimum >= 0 and values.maximum < 10_000 else []


def _more_classes(failed: Failed, count: int) -> Fix | None:
    """`nn.Linear(8, 5)` → `nn.Linear(8, 8)`, `one_hot(labels, 4)` → `one_hot(labels, 5)`: where the number is written out."""
    meaning = f"Right if {count - 1} is a class; if it is a wrong label, that is what to correct."
    title = f"Make room for {count} classes"
    scores, number = failed.operation.operand("input", "self"), failed.operation.argument("num_classes")
    if failed.operation.name == "one_hot":
        script = failed.scripts.get(number.place) if number is not None else None
        node = script.node_at(number.place.span) if script is not None else None
        literal = isinstance(node, ast.Constant)
        return failed.scripts.fix(f"{title}.", [script.replace(node, str(count))], meaning, safe=False) if literal else None
    made = scores.origin_of(1) if scores is not None and len(scores.shape) >= 2 else None
    layers = ("Linear", "Conv1d", "Conv2d", "Conv3d")
    return next(iter(enlarged(failed, layers, 1, "out_features" if len(scores.shape) == 2 else "out_channels", scores.shape[1], count, title, meaning, made)), None) if made else None


def _ignored(failed: Failed, label: int) -> Fix | None:
    """`ignore_index=-1` in the call of the loss, or where the loss module is made."""
    meaning = f"Targets of {label} then count neither in the loss nor in its mean."
    script, call = failed.script, failed.call
    if script is not None and isinstance(call, ast.Call) and called(call) in ("cross_entropy", "nll_loss"):
        return _with_keyword(failed, script, call, label, meaning)
    made = failed.operation.module_made
    home = failed.scripts.get(made.place) if made is not None else None
    node = home.node_at(made.place.span) if home is not None else None
    if home is None or not isinstance(node, ast.Call) or called(node) not in ("CrossEntropyLoss", "NLLLoss"):
        return None
    return _with_keyword(failed, home, node, label, meaning)


def _with_keyword(failed: Failed, script, call: ast.Call, label: int, meaning: str) -> Fix | None:
    if any(keyword.arg == "ignore_index" for keyword in call.keywords):
        return None
    last = [*call.args, *(keyword.value for keyword in call.keywords)]
    if last:
        edits = [script.insert(max(script.end(node) for node in last), f", ignore_index={label}")]
    else:
        line, column = script.end(call)
        edits = [script.insert((line, column - 1), f"ignore_index={label}")]
    return failed.scripts.fix(f"Leave the targets of {label} out: `ignore_index={label}`.", edits, meaning, safe=False)
