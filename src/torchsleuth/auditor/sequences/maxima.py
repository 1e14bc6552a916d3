"""A maximum over positions of which the padded ones all hold the same (zero, say): where all real values are less, the padding wins.

What stands at padded positions cannot be changed there (the embedding of a `padding_idx` is zero by construction), so no
disturbance shows it. The maximum is taken again over the real positions only and compared.
"""

from __future__ import annotations

import torch

from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import tolerance
from torchsleuth.auditor.laboratory.lab import KEPT_BYTES, Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.tracing.trace import Op, Trace

MAXIMA = {"max", "amax", "adaptive_max_pool1d", "max_pool1d", "topk"}


def maximum_moves(lab: Lab, padding: Padding) -> list[Move]:
    batch, length = padding.valid.shape
    suspects = [op.index for op in lab.trace.ops if op.name in MAXIMA and _axes(op, batch, length) is not None]
    if not suspects or sum(_bytes(op) for op in lab.trace.ops) > KEPT_BYTES:
        return []
    trace = Trace(keep=True)
    lab.runner.run(lab.call.args, lab.call.kwargs, trace=trace, mode=lab.mode)
    for index in suspects:
        if index < len(trace.ops) and trace.ops[index].name == lab.trace.ops[index].name and (move := _move(lab, trace, trace.ops[index], padding)) is not None:
            return [move]
    return []


def _axes(op: Op, batch: int, length: int) -> tuple[int, int] | None:
    """The axis of the samples and that of the positions, which the result does not have: as the call says, or by their sizes where these leave no choice."""
    if not op.ins or not op.outs:
        return None
    size, result = op.ins[0].size, op.outs[0].size
    along = op.argument(1, "dim") if op.name in ("max", "amax") else -1 if op.name.endswith("pool1d") else None
    if isinstance(along, int) and -len(size) <= along < len(size):
        along %= len(size)
        first = 1 if along == 0 else 0
        clear = batch != length or along > 0  # and else samples may come second
        return (first, along) if len(size) > 1 and clear and size[along] == length and size[first] == batch else None
    if len(size) < 2 or batch == length or size.count(batch) != 1 or size.count(length) != 1 or length in result or batch not in result:
        return None
    return size.index(batch), size.index(length)


def _move(lab: Lab, trace: Trace, op: Op, padding: Padding) -> Move | None:
    maker = trace.maker(op.ins[0])
    made = next((t for seen, t in zip(maker.outs, maker.tensors, strict=False) if seen.key == op.ins[0].key), None) if maker else None
    batch, length = padding.valid.shape
    axes = _axes(op, batch, length)
    if made is None or not made.is_floating_point() or not op.tensors or axes is None:
        return None
    b, t = axes
    values = made.movedim((b, t), (0, 1)).reshape(batch, length, -1)
    valid = padding.valid.to(values.device)[..., None]
    hidden = values[~valid[..., 0]]
    if bool(((hidden - hidden[:1]).abs() > tolerance(values)).any()) or not bool(values.masked_select(valid).any()):
        return None  # not the same at all padded positions: a convolution, say, sees the words beside them
    whole = values.amax(1)
    result = op.tensors[0]
    result = result.movedim(b - (t < b) if result.dim() < made.dim() else b, 0).reshape(batch, -1)
    if result.shape != whole.shape or not torch.equal(result, whole):
        return None  # not the maximum over all positions
    real = values.masked_fill(~valid, -torch.inf).amax(1)
    wins = whole > real + tolerance(values)
    if not bool(wins.any()):
        return None
    gap = (whole - real).masked_fill(~wins, 0)
    row, feature = divmod(int(gap.argmax()), gap.shape[1])
    count, ours, theirs = int((~padding.valid[row]).sum()), float(real[row, feature]), float(whole[row, feature])
    digits = next(n for n in (3, 6, 9, 17) if f"{ours:.{n}g}" != f"{theirs:.{n}g}" or n == 17)
    return lab.move_at(
        "padding-maximum", trace, op, float(gap[row, feature]),
        f"Taking the maximum over the real positions only, without the {count} padded ones of {padding.named(row)},",
        f"{int(wins[row].sum())} of the {gap.shape[1]} results of that {padding.sample} (the largest real value of one is {ours:.{digits}g}, "
        f"the {theirs + 0.0:.{digits}g} of the padding won)",
        assumed=padding.assumed, mask_name=padding.mask.name if padding.mask else "", real=padding.real, pooled=True, zero=not bool(hidden.any()),
    )  # fmt: skip


def _bytes(op: Op) -> int:
    return sum(torch.Size(seen.size).numel() * seen.dtype.itemsize for seen in op.outs)
