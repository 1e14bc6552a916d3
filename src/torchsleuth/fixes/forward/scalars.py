"""A number taken for a tensor of several, and the other way round."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.not_a_tensor import constructed
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix


class DimensionOutOfRangeFixer(Fixer):
    rule = "dimension-out-of-range"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        script, call = failed.script, failed.call
        if script is None or failed.in_library or not isinstance(call, ast.Subscript) or "0-dim tensor" not in failed.message:
            return []
        if not isinstance(call.ctx, ast.Load) or ast.unparse(call.slice) not in ("0", "-1"):
            return []
        edits = [script.edit(script.end(call.value), script.end(call), ".item()")]
        return [scripts.fix(f"It is a single number: `{script.segment(call.value)}.item()`.", edits, "The number has no gradient.", safe=False)]


class NotAScalarFixer(Fixer):
    rule = "not-a-scalar"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        script, operation = failed.script, failed.operation
        if script is not None and operation is not None and operation.name == "tensor":
            return [_stacked(failed)]
        if script is None or operation is None or failed.in_library or operation.name != "bool" or not isinstance(failed.call, ast.expr):
            return []
        if called(failed.call) in ("bool", "float", "int"):
            return []
        made = constructed(failed, script, failed.call) if isinstance(failed.call, ast.Call) else None
        if made is not None or operation.raised_in_python:  # inside what is called: nothing was asked of its result
            return [made]
        words = {"all": "True where it holds for every element", "any": "True where it holds for at least one element"}
        return [
            scripts.fix(f"Say what is asked: `.{name}()`.", script.wrapped(failed.call, f".{name}()"), f"{text}.", safe=False)
            for name, text in words.items()
        ]


def _stacked(failed: Failed) -> Fix | None:
    """`torch.tensor(outputs)` → `torch.stack(outputs)`, for a list of tensors of one shape."""
    call, tensors = failed.call, failed.operation.listed("data")
    if not isinstance(call, ast.Call) or called(call) != "tensor" or len(call.args) != 1 or call.keywords or failed.in_library:
        return None
    if not tensors or len({operand.shape for operand in tensors}) != 1 or not isinstance(call.args[0], (ast.Name, ast.Attribute, ast.List, ast.ListComp)):
        return None
    meaning = "The tensors stay connected to what they were computed from." if any(operand.tensor.requires_grad for operand in tensors) else ""
    return failed.scripts.fix("`stack` joins tensors; `tensor` makes one of numbers.", failed.renamed(call, "stack"), meaning)


class ListOfTensorsFixer(Fixer):
    rule = "list-of-tensors"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        """`out, (h, c) = gru(x)` → `out, h = gru(x)`, where `c` is not read."""
        failed = Failed(evidence, scripts)
        script, operation, target = failed.script, failed.operation, failed.call
        if script is None or operation is None or not operation.container.endswith(("a GRU", "a RNN")) or not isinstance(target, ast.Tuple):
            return []
        statement = script.statement_of(target)
        names = [item.id for item in target.elts if isinstance(item, ast.Name)]
        if script.parent(target) is statement or len(names) != len(target.elts) or len(names) < 2:
            return []
        scope = script.scope_of(statement)
        if any(isinstance(node, ast.Name) and node.id in names[1:] and isinstance(node.ctx, ast.Load) for node in script.own_nodes(scope)):
            return []
        start, end = script.start(target), script.end(target)
        return [scripts.fix(f"Take its one state: `{names[0]}`.", [script.edit(start, end, names[0])])]
