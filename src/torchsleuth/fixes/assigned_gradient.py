"""A gradient assigned by hand, in the shape and dtype of its tensor."""

from __future__ import annotations

import math

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix


class AssignedGradientFixer(Fixer):
    rule = "assigned-gradient"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.assigned_gradient
        at = scripts.node_at(found.use) if found is not None and found.value is not None else None
        if at is None:
            return []
        script, node = at
        tensor, value = found.tensor, found.value
        if value.shape != tensor.shape:
            if len(value.shape) != 1 or math.prod(value.shape) != math.prod(tensor.shape):
                return []  # only a flat vector has the elements in a known order
            return [scripts.fix(f"Give it the shape of `{found.owner}`.", script.wrapped(node, f".view_as({found.owner})"))]
        return [scripts.fix(f"Convert it to the dtype of `{found.owner}`.", script.wrapped(node, f".to({found.owner})"))] if value.dtype != tensor.dtype else []
