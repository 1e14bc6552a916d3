"""What the failing layer has been given before, and took: its own sizes are then not what is wrong."""

from __future__ import annotations

import torch

from torchsleuth.capture.failure import Failure
from torchsleuth.evidence_forward import Earlier

_LAYERS = frozenset(
    {"linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
    | {"layer_norm", "batch_norm", "group_norm", "instance_norm", "lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward"}
)


def taken_before(failure: Failure, module: torch.nn.Module | None) -> Earlier | None:
    """The newest input in the log that went through the layer's own weights without an error, and how many there were."""
    own = {id(parameter): tuple(parameter.shape) for parameter in module.parameters(recurse=False)} if module is not None else {}
    shapes = [
        operation.operands[0].shape
        for operation in (failure.crash.timeline.operations if own else ())
        if operation.name in _LAYERS and not operation.raised and operation.results and any(own.get(mark.ident) == mark.shape for mark in operation.operands[1:])
    ]
    return Earlier(shapes[-1], len(shapes)) if shapes else None
