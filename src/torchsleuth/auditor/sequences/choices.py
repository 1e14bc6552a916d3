"""Losses that choose among the positions of a sequence (a pointer, the start of a span): is what stands at padded ones ruled out?"""

from __future__ import annotations

import torch

from torchsleuth.auditor.inputs.batch import HIDES
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import distance, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import ARRANGING
from torchsleuth.origin import Origin

_CHOOSING = {"cross_entropy", "nll_loss"}


def choice_moves(lab: Lab, padding: Padding, step: StepView) -> list[Move]:
    """Scores [B, L] of a loss over L classes that are the positions: content at padded positions moves theirs, and no others."""
    if padding.axis > 1 or padding.leaf.tensor.dim() > 3:
        return []
    shape, valid = tuple(padding.valid.shape), padding.valid
    asked = [
        (op, target) for op, target, _, _ in step.watch.targets
        if op.name in _CHOOSING and op.ins and op.ins[0].size == shape and origin_of_place(op) is not Origin.LIBRARY  # a model's own loss is as its authors trained it
    ]  # fmt: skip
    scores = [(name, leaf) for name, leaf in output_leaves(lab.base) if leaf.is_floating_point() and tuple(leaf.squeeze(-1).shape if leaf.dim() > 2 else leaf.shape) == shape]
    if not asked or not scores or not all(_asks_for_real(target, valid) for _, target in asked):
        return []
    result, _ = lab.run([(padding.leaf, padding.like_leaf(~valid))])
    again = dict(output_leaves(result))
    for name, leaf in scores:
        if name not in again or again[name].shape != leaf.shape:
            continue
        one, two = (tensor.reshape(shape) for tensor in (leaf, again[name]))
        flags, allowed = moved_flags(one, two, lab.floor)
        hidden = ~valid.to(one.device)
        if bool(flags[~hidden].any()) or not bool(flags[hidden].all()) or float(one[hidden].min()) < float(one[~hidden].min()) - HIDES:
            continue  # it is no score of each position, or padded ones are ruled out already
        op = asked[0][0]
        made = next((made for made in step.trace.made_through(op.ins[0], ARRANGING) if made.name not in ARRANGING), None)
        row = padding.padded_rows[0]
        return [Move(
            "padding-choices", f"Changing the content of padded positions of `{padding.leaf.name}`", f"`{name}` at those positions", distance(one, two, flags), max(allowed, 1e-12),
            operation=op.name, operation_shape=shape, site=step.trace.site(made) if made is not None else None, made_site=step.trace.site(op),
            assumed=padding.assumed, pad_id=padding.pad_id, sequence=padding.leaf.name, mask_name=padding.mask.name if padding.mask else "",
            alone=f"in {padding.named(row)} {int(hidden[row].sum())} of the {shape[1]} alternatives are padding, with scores up to {float(one[row][hidden[row]].max()):.3g}",
        )]  # fmt: skip
    return []


def _asks_for_real(target: torch.Tensor, valid: torch.Tensor) -> bool:
    """Each label is a real position of its row."""
    if target.shape != valid.shape[:1] or target.is_floating_point() or int(target.min()) < 0 or int(target.max()) >= valid.shape[1]:
        return False
    return bool(valid.to(target.device).gather(1, target[:, None]).all())
