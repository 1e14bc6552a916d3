"""Products whose sizes do not meet: the second factor transposed, an image flattened before a linear layer."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, product
from torchsleuth.fixes.forward.resizing import doubled, resized
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix


class MatmulShapeFixer(Fixer):
    rule = "matmul-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.in_library:
            return []
        weight = operation.operand("weight")
        if weight is not None:
            data = failed.operand("input", "self")
            features = weight.shape[-1] if weight.shape else 0
            if data is not None and len(data.shape) > 2 and data.shape[-1] != features and product(data.shape[1:]) == features:
                return [failed.suffixed(data, ".flatten(1)", f"Flatten each sample to its {features} numbers: `.flatten(1)`.")]
            given = operation.operand("input", "self")
            if given is not None and given.shape and given.shape[-1] != features:
                both = doubled(failed, "in_features", 0, given.shape[-1], features) if operation.both_directions else None
                return [both, resized(failed, ("Linear",), 0, "in_features", given.shape[-1], "features")]
            return []
        if len(operation.operands) != 2 or operation.name == "einsum":
            return []
        one, other = operation.operands
        if len(one.shape) < 2 or len(other.shape) < 2 or len(one.shape) != len(other.shape):
            return []
        if one.shape[-1] != other.shape[-2] and one.shape[-1] == other.shape[-1] and one.shape[:-2] == other.shape[:-2]:
            # The first would do as well where its rows match; which one is meant cannot be told then.
            if one.shape[-2] == other.shape[-2] and one.shape != other.shape:
                return []
            meaning = f"The result is then {[*one.shape[:-1], other.shape[-2]]}: each row of {one.called} with each row of {other.called}."
            return [failed.suffixed(other, ".transpose(-1, -2)", f"Transpose {other.called}: `.transpose(-1, -2)`.", meaning, safe=False)]
        return []
