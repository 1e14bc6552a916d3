"""Batches with time first, of which neither labels nor padding tell: a layer of torch's that takes them so, and results that are one for each entry of the second axis."""

from __future__ import annotations

from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.laboratory.lab import Lab

_TAKING_STEPS = ("lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward")


def samples_by_layers(lab: Lab) -> int | None:
    """How many samples the second axis counts. (A layer alone does not tell: `batch_first=True` is easily forgotten.)"""
    shapes = {tuple(leaf.tensor.shape[:2]) for leaf in lab.call.leaves if leaf.tensor.dim() >= 2 and not batches.is_label(leaf)}
    if len(shapes) != 1:
        return None
    steps, samples = shapes.pop()
    results = [result.shape for _, result in output_leaves(lab.base)]
    if steps == samples or 1 in (steps, samples) or not results or not all(shape and shape[0] == samples and steps not in shape for shape in results):
        return None
    return samples if any(_takes_time_first(lab.runner.model, op.module) and op.ins[0].size[:2] == (steps, samples) for op in lab.trace.ops if op.name in _TAKING_STEPS and op.ins) else None


def _takes_time_first(model: nn.Module, path: str) -> bool:
    try:
        layer = model.get_submodule(path)
    except AttributeError:
        return False
    return isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)) and not layer.batch_first
