"""Operands that stretch one another by mistake."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Broadcast, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class SilentBroadcast(AuditRule):
    """Two operands of sizes (N,) and (N, 1) made an (N, N) result: every sample was combined with every other.

    What happened
    -------------
    An operation got two tensors whose axes of equal size do not lie over one another. Broadcasting
    stretched both, and the result is larger than either.

    Why
    ---
    Axes are matched from the right. (N,) is read as (1, N); with (N, 1) that makes (N, N). A loss of
    that size compares every prediction with every target: its mean is finite, it falls a little, and
    the model learns to predict the average. An accuracy or an error in an evaluation goes wrong the same way.
    (N,) weights on an (N, N) table of all pairs are the same mistake one step later: they lie along the
    second axis, and every weight is used with every sample. And weights or a mask that a loss meets when its mean
    has been taken already scale it as a whole. Sums or lengths of the rows of a square table, taken without
    `keepdim`, lie along its columns.
    How a legitimate table of all pairs is told from a mistake: it is of a tensor with itself; or an axis
    was put in on purpose (`unsqueeze`, `None`, `view`) on both sides; or it meets another table of the
    same sizes (distances, a mask, targets for the pairs). Weights are only reported on a product of two
    things of the batch (never on scores that a layer made) that is then summed over both axes at once:
    a sum along one axis has chosen its axis.

    Example
    -------
    One prediction too many axes. This prints torch.Size([3, 3]) and 4/3, although every prediction is
    right:

        import torch

        prediction = torch.tensor([[1.0], [2.0], [3.0]])
        target = torch.tensor([1.0, 2.0, 3.0])
        error = (prediction - target) ** 2
        print(error.shape, error.mean().item())

    Fix
    ---
    Give both the same shape: `prediction.squeeze(-1) - target`, or `target.unsqueeze(-1)`.

    Common false explanations
    -------------------------
    "PyTorch would have raised an error": sizes 1 and N fit by the rules. "The mean makes up for it":
    the mean of all pairs is not the mean of the matching ones.
    """

    name = "silent-broadcast"
    order = 8

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        lines: dict[tuple, list[Broadcast]] = {}
        alike: dict[tuple, list[Broadcast]] = {}  # one formula on one line: y * log(p) + (1 - y) * log(1 - p)
        for one in observation.broadcasts:
            if one.kind == "weights":
                yield _weights(one)
                continue
            if one.kind == "averaged":
                yield _averaged(one)
                continue
            if one.kind in ("features", "reduced"):
                lines.setdefault((one.site.span.file, one.site.span.line), []).append(one)
                continue
            if one.same_origin or one.explicit >= 2:
                continue
            if one.explicit == 1 and not one.reduced_into_loss:
                continue
            sizes = frozenset((one.left.size, one.right.size))
            alike.setdefault((one.site.span.file, one.site.span.line, sizes, one.explicit, one.reduced_into_loss), []).append(one)
        for group in alike.values():
            yield _diagnosis(group[0], group[1:])
        for group in lines.values():
            yield _features(group) if group[0].kind == "features" else _reduced([one for one in group if one.kind == "reduced"])


def _weights(one: Broadcast) -> Diagnosis:
    left, right = list(one.left.size), list(one.right.size)
    weights, table = sorted((left, right), key=len)
    culprits = [culprit(one.site, Role.OPERAND, f"{weights} is laid along the second axis of {table}")]
    if one.product is not None and one.product.span != one.site.span:
        culprits.append(culprit(one.product, Role.CREATE, f"combines every sample with every other: {table}"))
    return Diagnosis(
        SilentBroadcast.name, f"{weights} weights on a {table} table of all pairs: each weight counts for every sample",
        Confidence.LIKELY, tuple(culprits),
        observed(
            f"the operands of `{one.operation}` are {left} and {right}; the {table} is a product of all {weights[0]} samples with all {weights[0]}",
            "the result is summed over both axes at once, and meets no mask or target for the pairs",
        ),
        "Axes are matched from the right, so weight j meets the whole column j. If one number for each sample was meant, the "
        "product should have been taken row by row; if rows were to be weighted, the weights need a second axis.",
        (advice("For one number for each sample: `(a * b).sum(-1)` in place of `a @ b.T`. To weight rows: `weights[:, None]`."),),
    )  # fmt: skip


def _averaged(one: Broadcast) -> Diagnosis:
    weights = list(one.right.size)
    culprits = [culprit(one.site, Role.OPERAND, f"one number, the same for all {weights} weights")]
    if one.product is not None and one.product.span != one.site.span:
        culprits.insert(0, culprit(one.product, Role.CREATE, f"`{one.operation}` is reduced to one number here"))
    return Diagnosis(
        SilentBroadcast.name, f"the loss is one number before it meets its {weights} weights: no element counts more or less than another",
        Confidence.LIKELY, tuple(culprits),
        observed(f"the operands are the result of `{one.operation}`, which is one number, and {weights}; the product is reduced to the loss as it is"),
        "The mean over all elements is taken first, and weights (or a mask) of the elements then scale it as a whole: what they were to leave out counts like the rest.",
        (advice('Take the loss with `reduction="none"`, multiply, and reduce then: `(loss * weights).sum() / weights.sum()`.'),),
    )  # fmt: skip


def _reduced(group: list[Broadcast]) -> Diagnosis:
    one = group[0]
    short, table = sorted((list(one.left.size), list(one.right.size)), key=len)
    over, dims = _over(one, len(table))
    culprits = [culprit(one.site, Role.OPERAND, f"{list(one.left.size)} with {list(one.right.size)}: number i meets entry i of the last axis")]
    for reduced in group:
        if reduced.product is not None and reduced.product.span.line != one.site.span.line:
            culprits.append(culprit(reduced.product, Role.CREATE, f"`{reduced.reduction}` over {over} of {table} leaves {short}, without `keepdim=True`"))
    reductions = dict.fromkeys(f"`{reduced.reduction}`" for reduced in group)
    return Diagnosis(
        SilentBroadcast.name, f"{' and '.join(reductions)} over {over} of {table} {'gives' if len(reductions) == 1 else 'give'} {short}, which is laid along another axis",
        Confidence.CERTAIN, tuple(culprits),
        observed(
            *dict.fromkeys(f"the operands of `{r.operation}` are {list(r.left.size)} and {list(r.right.size)}, the result is {list(r.result)}" for r in group),
            f"the {short} was made of the same table by {' and by '.join(reductions)} over {over}, without `keepdim`",
        ),
        "Axes are matched from the right: what was computed for entry i of one axis meets entry i of another. The equal sizes hide it; with other sizes this would raise.",
        (advice(f"Keep the axis: {' and '.join(f'`{reduced.reduction}(…, dim={dims}, keepdim=True)`' for reduced in {r.reduction: r for r in group}.values())}."),),
    )  # fmt: skip


def _over(one: Broadcast, rank: int) -> tuple[str, str]:
    """The axes that were reduced, in words and as an argument."""
    if len(one.axes) == 1:
        return f"axis {one.axes[0]}", str(one.axes[0] if one.axes[0] + 1 < rank else -1)
    return f"axes {', '.join(map(str, one.axes[:-1]))} and {one.axes[-1]}", str(one.axes)


def _features(group: list[Broadcast]) -> Diagnosis:
    one = group[0]
    factors, table = sorted((list(one.left.size), list(one.right.size)), key=len)
    ones = ", 1" * (len(table) - 1)
    return Diagnosis(
        SilentBroadcast.name, f"{factors}, one number for each sample, is laid along the last axis of {table}: each sample meets the numbers of all",
        Confidence.LIKELY, tuple(culprit(b.site, Role.OPERAND, f"{list(b.left.size)} with {list(b.right.size)}: the first axis is that of the samples") for b in group),
        observed(
            f"the operands of `{one.operation}` are {list(one.left.size)} and {list(one.right.size)}; there are {factors[0]} samples, and the last axis happens to have as many entries",
            "the shorter one was made with one entry for each sample, and the longer one has the samples along its first axis",
        ),
        "Axes are matched from the right: entry j meets column j of every sample, and not sample j. With any other number of samples this would raise.",
        (advice(f"Give the shorter one an axis for each that it lacks: `.view(-1{ones})`."),),
    )  # fmt: skip


def _odd_axis(short: tuple[int, ...], long: tuple[int, ...]) -> int:
    """The axis of size 1 that the shorter one lacks, counted from the end where it is the last."""
    for axis, n in enumerate(long):
        if n == 1 and long[:axis] + long[axis + 1 :] == short:
            return axis if axis + 1 < len(long) else -1
    return -1


def _diagnosis(one: Broadcast, more: list[Broadcast]) -> Diagnosis:
    left, right, result = list(one.left.size), list(one.right.size), list(one.result)
    facts = [
        f"the operands of `{one.operation}` are {left} and {right}; the result is {result}, larger than both",
        "one of them was computed from the model's result, the other was not; what they give goes into one number" if one.kind == "metric" else "the result is reduced to the loss as it is" if one.reduced_into_loss else "",
    ]
    count = next((n for n in one.left.size if n > 1), 0)
    axis = _odd_axis(*sorted((one.left.size, one.right.size), key=len))
    if one.explicit:
        facts.append("an axis was put into one operand on purpose, but the two come from different tensors and go into one number")
    culprits = [culprit(b.site, Role.OPERAND, f"{list(b.left.size)} with {list(b.right.size)} makes {result}") for b in (one, *more)]
    for made in one.made:
        change = f"the {list(made.size)} {'gets its' if made.gained else 'loses an'} axis of size 1"
        facts.append(f"{change} by `{made.operation}`")
        if all((c.span.file, c.span.line) != (made.site.span.file, made.site.span.line) for c in culprits):
            culprits.append(culprit(made.site, Role.CREATE, f"here {change}"))
    return Diagnosis(
        SilentBroadcast.name, f"{left} and {right} broadcast to {result}: all pairs instead of {count} matching elements" + (" are compared" if one.kind == "metric" else ""),
        Confidence.CERTAIN if one.reduced_into_loss and not one.explicit else Confidence.LIKELY,
        tuple(culprits), observed(*facts),
        "Axes are matched from the right, so the two axes of equal size do not meet; both operands are stretched, and each "
        "element is combined with every other.",
        (advice(f"Bring both to the same shape first: `squeeze({axis})` on the longer one or `unsqueeze({axis})` on the shorter."),),
    )  # fmt: skip
