"""A tensor made under inference_mode that autograd needs: `no_grad` records nothing either, and leaves tensors normal."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.copies import occurrences
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Edit, Fix


class InferenceTensorFixer(Fixer):
    rule = "inference-tensor"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        return [_without_inference(evidence, scripts), _cloned(evidence, scripts)]


def _without_inference(evidence: Evidence, scripts: Scripts) -> Fix | None:
    edits: list[Edit] = []
    for cut in evidence.inference:
        script = scripts.get(cut.wrapper)
        node = script.node_at(cut.wrapper.span) if script is not None else None
        if script is None or node is None:
            return None
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Attribute) or function.attr != "inference_mode":
            return None
        if isinstance(node, ast.Call) and (node.args or node.keywords):
            return None
        text = f"{script.segment(function.value)}.no_grad()"
        edits.append(script.replace(node, text))
    return scripts.fix("Use `no_grad` there: it records nothing either, and its tensors can be used afterwards.", edits)


def _cloned(evidence: Evidence, scripts: Scripts) -> Fix | None:
    """A normal copy where the tensor is used."""
    frame = evidence.user_frame
    cut = evidence.inference[0] if len(evidence.inference) == 1 else None
    script = scripts.get(frame.place) if frame is not None else None
    node = script.node_at(frame.place.span) if script is not None else None
    if cut is None or cut.tensor is None or script is None or not isinstance(node, ast.Call) or not cut.tensor.name or called(node).endswith("_"):
        return None
    found = occurrences(script, node, cut.tensor.name)
    if len(found) != 1:
        return None
    return scripts.fix(f"Use a normal copy: `{cut.tensor.name}.clone()`.", script.wrapped(found[0], ".clone()"))
