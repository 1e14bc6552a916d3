"""Are the operands of a loss what it takes them for: log-probabilities, probabilities, and along which axis?"""

from __future__ import annotations

import math
import typing

import torch

from torchsleuth.auditor.laboratory.accelerator import at_hand
from torchsleuth.auditor.losses.magnitudes import weight_of
from torchsleuth.auditor.losses.squashed import built
from torchsleuth.auditor.observation import AxisFact
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.owners import softmax_built
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace, quietly, tensors_in

ACTIVATIONS = {"softmax", "log_softmax", "sigmoid", "logsigmoid", "softmin", "tanh", "relu", "sigmoid_"}
KEEPING = ARRANGING | {"clamp", "clip", "clamp_min"}
LOGS = {"log", "add", "add_", "log_", "clamp", "clip", "clamp_min", "maximum"}
_SCALING = {"mul", "div", "cat", "concat", "masked_fill", "sub", "add"}
_MULTIPLYING, _DIVIDING = {"mul", "mul_", "__imul__", "multiply"}, {"div", "div_", "__itruediv__", "true_divide"}
_PRODUCTS = {"matmul", "mm", "bmm", "einsum", "__matmul__", "cosine_similarity", "linear", "cdist"}
_CLASS_AXIS = {"cross_entropy": 1, "nll_loss": 1, "ctc_loss": -1}
ABOUT_ONE = 1.5  # cosines lie between -1 and 1, and a margin may be taken off
CLOSE, FAR = 1e-2, 0.1  # a sum of probabilities that is one but for rounding (or an epsilon under a logarithm), and one that is not


def activation_of(trace: Trace, seen: Seen) -> Op | None:
    """The activation that this operand comes straight from."""
    chain = list(trace.made_through(seen, KEEPING))
    return chain[-1] if chain and chain[-1].name in ACTIVATIONS else None


def layer_site(trace: Trace, seen: Seen) -> Site | None:
    """The layer that this operand comes straight from."""
    made = [None, *trace.made_through(seen, KEEPING)][-1]
    layer = made is not None and made.name not in KEEPING and any(one.key in trace.parameters for one in made.ins)
    return trace.site(made) if made is not None and layer else None


def of_scores(name: str, given: torch.Tensor, trace: Trace, op: Op) -> dict[str, typing.Any]:
    """For a loss over classes: do its rows hold probabilities or their logarithms, and if not, do they along another axis?"""
    if name not in _CLASS_AXIS:
        return {}
    axis = _CLASS_AXIS[name] % given.dim() if given.dim() > 1 else 0
    values = given.float()
    classes = given.shape[axis]
    facts: dict[str, typing.Any] = {
        "classes": classes if name != "ctc_loss" else None,
        "normalised": _sums_to_one(values, axis),
        "rows_sum_to_one": bool(classes > 1 and (values >= 0).all() and (values.sum(axis) - 1).abs().max() < 1e-3),
    }
    facts["similarities"] = _compares(trace, op.ins[0]) or (float(values.abs().max()) <= ABOUT_ONE * factor(trace, op.ins[0])[0] and not _of_layer(trace, op.ins[0]))
    chain = list(trace.made_through(op.ins[0], KEEPING))
    if facts["rows_sum_to_one"] and chain and chain[-1].name not in ACTIVATIONS:
        facts["activation_site"] = trace.site(chain[-1])  # a softmax written by hand, a mean of several
    if not facts["normalised"] and chain and chain[-1].name in ("log", "log_"):
        facts["logarithm"] = trace.site(chain[-1])
    if not facts["normalised"] and classes > 1:
        other = next((d for d in range(given.dim()) if d != axis and given.shape[d] > 1 and _sums_to_one(values, d)), None)
        made = _softmax_behind(trace, op.ins[0])
        if other is not None and made is not None:
            facts |= {"sums_along": other, "activation_site": trace.site(made), "activation": made.name, "activation_built": built(trace, made)[0]}
        elif made is not None and (before := _along_before(values, made.outs[0].size)) is not None:
            facts |= {"sums_along": before, "sums_in": made.outs[0].size, "activation_site": trace.site(made), "activation": made.name, "activation_built": built(trace, made)[0]}
    return facts


def _along_before(values: torch.Tensor, size: tuple[int, ...]) -> int | None:
    """The axis along which these rows of logarithms were probabilities before they were laid one after the other, (B, T, C) as (B * T, C)."""
    if values.dim() != 2 or len(size) < 3 or size[-1] != values.shape[1] or math.prod(size) != values.numel():
        return None
    whole = values.reshape(size)
    return next((d for d in range(len(size) - 1) if size[d] > 1 and _sums_to_one(whole, d)), None)


def _compares(trace: Trace, seen: Seen) -> bool:
    """Scores that are products of two computed things (pairs of samples, prototypes), over a temperature: no layer gave them."""
    made = list(trace.made_through(seen, KEEPING | _SCALING | {"log_softmax"}))
    if not made or made[-1].name not in _PRODUCTS or len(made[-1].ins) < 2:
        return False
    return not any(weight_of(trace, operand) is not None for operand in made[-1].ins)


def _of_layer(trace: Trace, seen: Seen) -> bool:
    """Scores that a layer gave, a factor put on them or not: however small its result is, these are no cosines."""
    made = list(trace.made_through(seen, KEEPING | _SCALING | _MULTIPLYING | _DIVIDING | {"log_softmax"}))
    return bool(made) and made[-1].name in _PRODUCTS and any(one.key in trace.parameters for one in made[-1].ins[1:])


def factor(trace: Trace, seen: Seen) -> tuple[float, Op | None]:
    """The number that the scores were multiplied by last, and where: a scale that somebody chose (1 if there is none)."""
    for op in trace.made_through(seen, KEEPING | _MULTIPLYING | _DIVIDING | {"log_softmax"}):
        if op.name in _MULTIPLYING | _DIVIDING:
            by = op.argument(1, "other")
            if isinstance(by, (int, float)) and by:
                return (abs(by) if op.name in _MULTIPLYING else 1 / abs(by)), op
            return next(((abs(float(t)), op) for source in op.ins if source.size == () and (t := trace.tensor(source.key)) is not None), (1.0, None))
    return 1.0, None


def of_divergence(given: torch.Tensor, target: torch.Tensor, log_target: bool, trace: Trace, op: Op) -> dict[str, typing.Any]:
    """For `kl_div`: is the first operand logarithms of what the second one is probabilities of?"""
    made = activation_of(trace, op.ins[1]) if len(op.ins) > 1 else None
    facts: dict[str, typing.Any] = {
        "log_target": log_target, "target_lowest": float(target.min()),
        "target_activation": made.name if made is not None else "", "target_site": trace.site(made) if made is not None else None,
    }  # fmt: skip
    values = target.float().exp() if log_target else target.float()
    axes = [d for d in range(target.dim()) if target.shape[d] > 1 and bool((values.sum(d) - 1).abs().max() < CLOSE)]
    # Part of a distribution, or one that is put together from parts, need not sum to one on either side.
    if axes and (values >= 0).all() and given.shape == target.shape and _softmax_behind(trace, op.ins[0]) is None:
        facts["normalised"] = all(float(given.float().logsumexp(d).abs().median()) < FAR for d in axes)
    else:
        facts["normalised"] = True
    along = [d for d in range(given.dim()) if given.shape[d] > 1 and _sums_to_one(given.float(), d)]
    if len(axes) == len(along) == 1 != given.dim() and axes != along and given.shape == target.shape and (ran := _softmax_behind(trace, op.ins[0])) is not None:
        # Of two that run over different axes the one over the samples is wrong.
        wrong, other, right = (made, axes[0], along[0]) if axes[0] == 0 and made is not None else (ran, along[0], axes[0])
        site = trace.site(wrong)
        facts |= {"sums_along": other, "asked_along": right, "activation_site": site, "activation": wrong.name, "activation_built": softmax_built(site, wrong.name)}
    return facts


def _sums_to_one(logarithms: torch.Tensor, axis: int) -> bool:
    return bool(logarithms.logsumexp(axis).abs().max() < CLOSE)


def _softmax_behind(trace: Trace, seen: Seen) -> Op | None:
    """The softmax that this operand is the logarithm of, an epsilon or a bound put in on the way."""
    chain = list(trace.made_through(seen, KEEPING | LOGS))
    return chain[-1] if chain and chain[-1].name in ("softmax", "log_softmax") else None


class PickWatch:
    """Cross entropies written by hand: does the label pick along the axis that the softmax ran over?"""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts: list[AxisFact] = []

    def install(self) -> None:
        for name in ("gather", "take_along_dim"):
            self.trace.watchers.setdefault(name, []).append(quietly(self._picked))
        self.trace.watchers.setdefault("mul", []).append(quietly(self._weighed))
        self.trace.watchers.setdefault("__getitem__", []).append(quietly(self._indexed))

    def _picked(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`log_p.gather(dim, labels)`"""
        made = self._normaliser(op) if len(op.ins) == 2 else None
        dim = op.argument(1 if op.name == "gather" else 2, "dim")
        if made is None or not isinstance(dim, int) or len(op.ins[0].size) != len(op.ins[1].size):
            return
        index = next(iter(tensors_in((args[1:], kwargs))), None)
        with torch.no_grad():
            scores, axis = tensors_in(args)[0].detach().float(), dim % len(op.ins[0].size)
            along = _distributed_along(scores)
            if index is None or index.shape[axis] != 1 or axis in along or len(along) != 1 or not result.requires_grad:
                return
            # One number for all along the softmax: a whole distribution is picked (that of the last position, say).
            if bool((index == index.narrow(along[0], 0, 1)).all()):
                return
        self._add(op, made, along[0], axis)

    def _normaliser(self, op: Op) -> Op | None:
        """What may have made probabilities, or their logarithms, of what is picked from: a softmax, or one written by hand."""
        return _softmax_behind(self.trace, op.ins[0]) or next(iter(self.trace.made_through(op.ins[0], ())), None)

    def _indexed(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`log_p[range(n), labels]`"""
        index = args[1] if len(args) > 1 and isinstance(args[1], tuple) and len(args[1]) == 2 else None
        if index is None or not isinstance(index[1], torch.Tensor) or args[0].dim() != 2 or not result.requires_grad or index[1].dtype is torch.bool:
            return
        count, labels = args[0].shape[0], at_hand(index[1])
        rows = index[0].tolist() if isinstance(index[0], torch.Tensor) else list(index[0]) if isinstance(index[0], (range, list)) else None
        if labels.shape != (count,) or rows != list(range(count)) or bool((labels == labels[:1]).all()):
            return
        made = self._normaliser(op)
        with torch.no_grad():
            if made is not None and _distributed_along(args[0].detach().float()) == [0]:
                self._add(op, made, 0, 1)

    def _weighed(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`one_hot * log_p`: the labels are a distribution along another axis than the predictions."""
        if len(op.ins) != 2 or op.ins[0].size != op.ins[1].size or len(op.ins[0].size) < 2:
            return
        for mine, other in ((0, 1), (1, 0)):
            made = _softmax_behind(self.trace, op.ins[mine])
            if made is None or op.ins[other].requires_grad or not op.ins[mine].requires_grad:
                continue
            with torch.no_grad():
                operands = [t.detach().float() for t in tensors_in(args)]
                if (operands[mine] > CLOSE).any() and not self._overlap(op, mine, other, operands):
                    continue  # probabilities: an average of distributions, as attention takes
                along = _distributed_along(operands[mine])
                labels = operands[other]
                asked = [d for d in range(labels.dim()) if labels.shape[d] > 1 and bool(((labels.sum(d) - 1).abs() < CLOSE).all())] if (labels >= 0).all() else []
            if len(along) == 1 and len(asked) == 1 and along != asked:
                self._add(op, made, along[0], asked[0])

    def _overlap(self, op: Op, mine: int, other: int, operands: list[torch.Tensor]) -> bool:
        """Probabilities of images or sequences that sum to one over the samples, times one-hot labels (as in a Dice loss): no weights of a mean are
        laid along the first axis of so many."""
        labels = operands[other]
        given = not self.trace.ancestors({op.ins[other].key}) & self.trace.parameters.keys()
        return given and labels.dim() > 2 and bool(((labels == 0) | (labels == 1)).all()) and _distributed_along(operands[mine]) == [0]

    def _add(self, op: Op, made: Op, along: int, asked: int) -> None:
        site, use = self.trace.site(made), self.trace.site(op)
        if site is not None and use is not None and not use.library:
            self.facts.append(AxisFact("picked-axis", made.name, along, op.ins[0].size, site, use, along, asked, built(self.trace, made)[0]))


def _distributed_along(values: torch.Tensor) -> list[int]:
    """The axes along which these are probabilities, or logarithms of such."""
    logarithms = bool((values <= CLOSE).all())
    axes = [d for d in range(values.dim()) if values.shape[d] > 1]
    return [d for d in axes if (_sums_to_one(values, d) if logarithms else bool(((values.sum(d) - 1).abs() < CLOSE).all()))]
