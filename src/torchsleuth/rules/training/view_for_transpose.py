"""A view to the same sizes in another order."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation, Swap
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ViewForTranspose(AuditRule):
    """`view` or `reshape` changes the order of the sizes, but not the order of the elements.

    What happened
    -------------
    A tensor was given a shape with the same sizes in another order, such as (batch, time, classes) to
    (batch, classes, time), by `view` or `reshape`; or one in which an axis has moved past a part of the axis
    beside it, such as (batch, time, heads * width) to (batch, heads, time, width), or back; or a map of
    channels, (batch, channels, height, width), was read off as the positions of a sequence, (batch, height *
    width, channels), or back; or pictures were cut into pieces that are no patches. Or predictions (time, batch,
    classes) and labels (batch, time) were each flattened, and compared.

    Why
    ---
    `view` and `reshape` keep the elements in their order in memory and only count them off anew. Exchanging
    axes needs `transpose` or `permute`. The shape that comes out is the same, the contents are not:
    scores of one class become scores of several.

    Example
    -------
    Two rows of three become three rows of two. This prints [[1, 2], [3, 4], [5, 6]], and then the
    transpose [[1, 4], [2, 5], [3, 6]]:

        import torch

        x = torch.tensor([[1, 2, 3], [4, 5, 6]])
        print(x.view(3, 2).tolist())
        print(x.transpose(0, 1).tolist())

    Fix
    ---
    `x.transpose(1, 2)` or `x.permute(...)`. For maps: `x.flatten(2).transpose(1, 2)`, and back
    `x.transpose(1, 2).reshape(batch, channels, height, width)`. For heads: `x.view(batch, time, heads, width).transpose(1, 2)`, and
    back `x.transpose(1, 2).reshape(batch, time, heads * width)`.

    Common false explanations
    -------------------------
    "The loss accepts the shape, so it is right": a loss checks sizes, not meanings.
    """

    name = "view-for-transpose"
    order = 18

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for swap in observation.swaps:
            if swap.labels is not None:
                yield _crossed(swap, swap.labels)
                continue
            before, after = list(swap.before), list(swap.after)
            fact = f"the sizes {before} and {after} are the same in another order; the elements stay in their old order"
            if sorted(n for n in before if n != 1) != sorted(n for n in after if n != 1):
                fact = f"{before} is counted off anew as {after}; the elements stay in their old order, so that what was one axis beside another is cut across"
            if swap.moved:
                old, new = list(swap.part_before), list(swap.part_after)
                fact = f"{old} is counted off anew as {new}: the axis of {swap.moved} stands elsewhere, the elements stay in their old order"
            title, fix = f"`{swap.operation}` from {before} to {after} does not exchange axes", f"Write `{swap.written}`." if swap.written else "Use `transpose` or `permute`."
            if swap.torn:
                each, plane = math.prod(swap.part_after[1:]), math.prod(swap.part_before[1:])
                fact = (f"each of the {swap.moved} parts is {each} numbers that follow one another in memory; a channel of the picture has {plane}, "
                        f"so that some begin in one channel and end in the next, and none is a patch")  # fmt: skip
                title = f"`{swap.operation}` from {before} to {after} does not cut the picture into patches"
                fix = ("Split both sides, move the axes, then merge: `x.reshape(B, C, H // p, p, W // p, p).permute(0, 2, 4, 1, 3, 5).reshape(B, n, C * p * p)`; "
                       "or `F.unfold(x, p, stride=p).transpose(1, 2)`.")  # fmt: skip
            elif len(swap.part_before) == len(swap.part_after) == 3 and (times := swap.part_after[1] // swap.part_before[1]) > 1:
                wide = swap.part_after[2]
                fact = f"{list(swap.part_before)} is counted off anew as {list(swap.part_after)}: a row of {wide} is {times} rows of one channel, one after the other, and not one row of {times} channels"
                title = f"`{swap.operation}` from {before} to {after} does not spread the channels over a larger picture"
                fix = f"`F.pixel_shuffle(…, {times})`, or split the channels, move the axes, then merge: `.view(B, C, {times}, {times}, H, W).permute(0, 1, 4, 2, 5, 3).reshape({', '.join(map(str, after))})`."
            yield Diagnosis(
                self.name, title, Confidence.LIKELY,
                (culprit(swap.site, Role.OPERAND, f"{before} is read off as {after}"),),
                observed(fact),
                "To exchange axes the elements must move. `view` and `reshape` only count them off anew, so that values of different "
                "positions, channels or classes end up side by side.",
                (advice(fix),),
            )  # fmt: skip


def _crossed(swap: Swap, labels: Site) -> Diagnosis:
    before, after = list(swap.before), list(swap.after)
    places = (culprit(labels, Role.OPERAND, f"labels {after}, one row after the other"), culprit(swap.site, Role.OPERAND, f"predictions {before}, one row after the other"))
    return Diagnosis(
        ViewForTranspose.name, "predictions and labels are flattened in different orders", Confidence.CERTAIN, places if labels.span != swap.site.span else places[:1],
        observed(f"`{swap.operation}` compares row k of the predictions {before} with entry k of the labels {after}: the axes of {after[1]} and {after[0]} have changed places"),
        "Flattening reads off the last axis first. Where the axes of the labels stand in another order than those of the predictions, each prediction is "
        "compared with the label of another position of another sample.",
        (advice("Bring both into one order before they are flattened: `transpose(0, 1)` on one of them."),),
    )  # fmt: skip
