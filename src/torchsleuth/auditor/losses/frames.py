"""Frames that `ctc_loss` is told to align although they are padding: every row is given the padded length."""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.tracing.beginnings import beginning
from torchsleuth.auditor.tracing.trace import Op, Trace


class Measured(typing.NamedTuple):
    """How long the rows are that a call packs, or aligns; of `ctc_loss` also how many frames it is given."""

    op: Op
    lengths: torch.Tensor
    frames: int = 0


def padded_frames(trace: Trace, aligned: typing.Iterable[Measured], packed: typing.Sequence[Measured], paddings: typing.Iterable[Padding]) -> list[InputFact]:
    for one in aligned:
        site, rows = trace.site(one.op), one.lengths.numel()
        if site is None or rows < 2 or not bool((one.lengths == one.frames).all()):
            continue
        before = trace.ancestors({one.op.ins[0].key})
        told = [(pack.lengths, "`pack_padded_sequence` was given") for pack in packed if any(seen.key in before for seen in pack.op.outs)]
        told += [(known.valid.sum(1), f"of `{known.leaf.name}` are real") for known in paddings if known.right and not known.assumed and known.valid.shape == (rows, one.frames)]
        for real, words in told:
            if real.numel() == rows and int(real.max()) == one.frames and int(real.min()) < one.frames:
                count = int((one.frames - real).sum())
                text = (f"`input_lengths` is {one.frames}, the padded length, for each of the {rows} rows; the lengths that {words} run from {int(real.min())} to {int(real.max())}"
                        if words.startswith("`") else f"`input_lengths` is {one.frames}, the padded length, for each of the {rows} rows; {int(real.min())} to {int(real.max())} positions {words}")  # fmt: skip
                made = beginning(trace, one.op.ins[2].key) if len(one.op.ins) > 2 else None
                return [InputFact("padded-frames", "input_lengths", text, one.frames, site=site, count=count, made=made)]
    return []
