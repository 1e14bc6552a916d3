"""Images in another layout than a convolution takes: channels moved to the front, a missing dimension added."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.forward.resizing import resized
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix


class ConvShapeFixer(Fixer):
    rule = "conv-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.in_library or not operation.name.startswith(("conv1d", "conv2d", "conv3d")):
            return []
        weight, image = operation.operand("weight"), failed.operand("input", "self")
        if weight is None or image is None or len(weight.shape) < 3:
            return []
        channels, rank = weight.shape[1], len(weight.shape)
        groups = operation.argument("groups")
        if groups is not None and groups.value not in ("1", ""):
            return []
        if len(image.shape) == rank and image.shape[-1] == channels != image.shape[1]:
            order = ", ".join(str(axis) for axis in (0, rank - 1, *range(1, rank - 1)))
            return [failed.suffixed(image, f".permute({order})", f"Bring the channels to the front: `.permute({order})`.")]
        if len(image.shape) == rank - 1 and image.shape[-1] == channels != image.shape[0]:
            order = ", ".join(str(axis) for axis in (rank - 2, *range(rank - 2)))
            return [failed.suffixed(image, f".permute({order})", f"Bring the channels to the front: `.permute({order})`.")]
        if len(image.shape) == rank - 2 and channels == 1:
            return [failed.suffixed(image, ".unsqueeze(0)", "Add the channel dimension: `.unsqueeze(0)`.")]
        if len(image.shape) == rank - 1 and channels == 1 and image.shape[0] != 1:
            meaning = f"{image.shape[0]} is then the batch."
            return [failed.suffixed(image, ".unsqueeze(1)", "Add the channel dimension: `.unsqueeze(1)`.", meaning, safe=False)]
        if len(image.shape) == rank and image.shape[1] != channels and image.shape[-1] != channels:
            return resized(failed, ("Conv1d", "Conv2d", "Conv3d"), 0, "in_channels", channels, image.shape[1], "channels", image, 1, weight.origin_of(1))
        return []
