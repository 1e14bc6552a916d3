"""One traced step turned into observations: the same for `audit` and for a running program's first step."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field

import torch
from torch import nn

from torchsleuth.auditor.gradients.flatness import SaturationWatch
from torchsleuth.auditor.gradients.gradients import Flow, follows_another, used_modules, weights_of
from torchsleuth.auditor.gradients.ratios import constant_ratios
from torchsleuth.auditor.gradients.undetached import undetached
from torchsleuth.auditor.gradients.unregistered import unregistered
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.inputs.paddedbyuse import padded_lookups
from torchsleuth.auditor.inputs.polarity import polarity
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.losses.averagedbefore import averaged_before
from torchsleuth.auditor.losses.broadcasting import broadcasts
from torchsleuth.auditor.losses.derivatives import without_graph
from torchsleuth.auditor.losses.distributions import PickWatch
from torchsleuth.auditor.losses.frames import padded_frames
from torchsleuth.auditor.losses.leftout import left_out
from torchsleuth.auditor.losses.metrics import compared_crosswise
from torchsleuth.auditor.losses.numberterms import number_terms
from torchsleuth.auditor.losses.oversamples import over_samples
from torchsleuth.auditor.losses.overwritten import overwritten_losses
from torchsleuth.auditor.losses.reducedaxis import off_their_axis
from torchsleuth.auditor.losses.terms import constant_terms, idle
from torchsleuth.auditor.losses.unitlengths import UnitWatch
from torchsleuth.auditor.losses.wholerows import padded_picks, reduced_whole
from torchsleuth.auditor.observation import AxisFact, InputFact, LossCall
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Weight
from torchsleuth.auditor.operations.draws import drawn, draws
from torchsleuth.auditor.operations.finite import FiniteWatch
from torchsleuth.auditor.operations.hotlines import hot_lines
from torchsleuth.auditor.operations.integers import IntegerWatch
from torchsleuth.auditor.operations.patterns import AliasWatch, SoftmaxWatch, aliases, collected
from torchsleuth.auditor.operations.repeated import with_the_other
from torchsleuth.auditor.operations.unkept import unkept
from torchsleuth.auditor.program.clipping import ClipWatch
from torchsleuth.auditor.samples.sampleaxis import SampleAxis
from torchsleuth.auditor.samples.views import crossed_labels, swapped_views
from torchsleuth.auditor.tracing.beginnings import given_by, maker, way_back
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.callers import of_several, with_caller
from torchsleuth.auditor.tracing.owners import criterion_built, owner_classes, softmax_built
from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.auditor.tracing.watchers import Watch
from torchsleuth.origin import Origin

CHANCE = 1e-3  # that flags are zero at all padded positions, where nothing says so
NOTHING = 1e-6  # a probability that adds nothing to a loss


@dataclass
class StepView:
    """A trace with its watchers, and the facts of the step it saw."""

    trace: Trace = field(default_factory=lambda: Trace(watchers={}, early={}))
    watch: Watch = field(init=False)
    softmaxes: SoftmaxWatch = field(init=False)
    picks: PickWatch = field(init=False)
    lengths: UnitWatch = field(init=False)
    alias_watch: AliasWatch = field(init=False)
    finite: FiniteWatch = field(init=False)
    clips: ClipWatch = field(init=False)
    saturation: SaturationWatch = field(init=False)
    integers: IntegerWatch = field(init=False)
    regarded: dict[int, frozenset[str]] = field(default_factory=dict)  # by the model: names of its results that a loss was computed from

    def __post_init__(self) -> None:
        self.watch = Watch(self.trace)
        self.watch.install()
        self.softmaxes = SoftmaxWatch(self.trace)
        self.softmaxes.install()
        self.picks = PickWatch(self.trace)
        self.picks.install()
        self.lengths = UnitWatch(self.trace)
        self.lengths.install()
        self.alias_watch = AliasWatch(self.trace)
        self.alias_watch.install()
        self.finite = FiniteWatch(self.trace)
        self.finite.install()
        self.clips = ClipWatch(self.trace)
        self.clips.install()
        self.saturation = SaturationWatch(self.trace)
        self.saturation.install()
        self.integers = IntegerWatch(self.trace)
        self.integers.install()

    def continued(self) -> StepView:
        """A view of what comes next, which knows where the tensors of this one came from."""
        other = StepView()
        other.trace.follow(self.trace)
        other.clips.idle += self.clips.idle
        return other

    def forgotten(self) -> StepView:
        """A view that has seen nothing, where the rest of a step will not be seen: half of one tells of uses and ends that are none.
        Tensors keep their numbers."""
        trace = self.trace
        for seen in (trace.ops, trace.producer, trace.parameters, trace.bared, trace.entered):
            seen.clear()
        return StepView(trace)

    def facts(
        self,
        model: nn.Module,
        output: typing.Any,
        loss: torch.Tensor | None,
        states: dict[str, str] | None,
        keys: dict[str, int],
        optimized: set[int] | None,
        batch_size: int | None,
        inside: slice,
        elsewhere: typing.Container[int] = (),
        step: slice | None = None,
        since: int = 0,
        beside: typing.Sequence[torch.Tensor] = (),
    ) -> dict[str, typing.Any]:
        """Fields of an `Observation`. `since`: the calls before this one belong to other steps; `beside`: other losses of the same step."""
        trace = self.trace
        loss_key = trace.known_key(loss) if loss is not None else None
        self.regarded[id(model)] = self._regarded(output, [loss, *beside])
        for items in collected(output):
            self.alias_watch.look(None, items)
        held = [*model.buffers(), *(v for m in model.modules() for v in vars(m).values() if isinstance(v, torch.Tensor))]
        own = set(trace.parameters) | {key for tensor in held if (key := trace.known_key(tensor)) is not None}
        found: dict[str, typing.Any] = {
            "broadcasts": tuple(broadcasts(trace, loss_key, batch_size, own, inside)),
            "axes": tuple(
                dataclasses.replace(fact, built=fact.built or softmax_built(fact.site, fact.operation)) for fact in (*self.softmaxes.facts.values(), *self.lengths.facts.values(), *self._picked(loss_key))
            ) + tuple(over_samples(trace, loss_key, SampleAxis(trace, inside, batch_size, own))),
            "duplicates": tuple({d.site.span: d for d in self.watch.indexed.found}.values()),
            "aliases": tuple(aliases(trace, self.alias_watch.found)),
            "not_finite": self.finite.culprit(loss),
            "finite": _finite(output, loss, states),
            "unkept": tuple(unkept(trace, slice((step or slice(None)).start, None))),
            "hot": tuple(hot_lines(trace, step or slice(None))),
        }
        results = {key for _, t in output_leaves(output) if (key := trace.known_key(t)) is not None}
        found["broadcasts"] += tuple(compared_crosswise(trace, results, trace.ancestors({loss_key}))) if loss_key is not None else ()
        found["broadcasts"] += (*averaged_before(trace, loss_key), *off_their_axis(trace, loss_key))
        crossed = crossed_labels(trace, [op for op, _ in self.watch.losses])
        found["swaps"] = (*swapped_views(trace, results | ({loss_key} if loss_key is not None else set()), inside), *crossed)
        found["unregistered"] = tuple(unregistered(model, trace, loss_key, elsewhere, inside))
        lost = overwritten_losses(trace, step or slice(None)) if loss is not None else []
        if states is not None:
            weights = weights_of(model, states, used_modules(trace, keys), optimized)
            found["weights"] = tuple(weights)
            found.update(self._flow(model, output, loss, weights, keys, since))
            for other in beside:
                if (again := self._flow(model, output, other, weights, keys, since)).get("cuts"):
                    found["cuts"] = (*found.get("cuts", ()), *(cut for cut in again["cuts"] if cut not in found.get("cuts", ())))
                    cut_off = {name for cut in again["cuts"] for name in cut.weights}
                    found["unused"] = tuple(unused for unused in found.get("unused", ()) if not cut_off & set(unused.weights))
            trained = {w.name for w in weights if w.in_optimizer is not False and w.grad == "ok"}
            found["ratios"] = tuple(fact for one in (loss, *beside) if one is not None for fact in constant_ratios(trace, trace.known_key(one)))
            found["undetached"] = tuple(fact for one in (loss, *beside) if one is not None for fact in undetached(trace, trace.known_key(one), keys, trained))
            explained = {name for fact in (*found.get("cuts", ()), *found.get("unused", ())) for name in fact.weights}
            if loss is not None and not since:
                named = {fact.site.span for fact in lost if fact.site is not None}
                lost += left_out(trace, [loss, *beside], keys, named, [w.name for w in _wanted(weights) if w.grad == "none" and w.name in keys and w.name not in explained])
        found["unused"] = (*(with_the_other(unused, model, trace, inside) for unused in found.get("unused", ())), *lost)
        return found

    def _regarded(self, output: typing.Any, losses: typing.Iterable[torch.Tensor | None]) -> frozenset[str]:
        """The results a loss was computed from. What else a model returns (the state that a recurrence ends in) is judged by nobody."""
        known = {key for loss in losses if loss is not None and (key := self.trace.known_key(loss)) is not None}
        before = self.trace.ancestors(known)
        return frozenset(name for name, leaf in output_leaves(output) if self.trace.known_key(leaf) in before)

    def _picked(self, loss_key: int | None) -> list[AxisFact]:
        """What is picked past the axis of a softmax, each place once."""
        return list({fact.use.span: fact for fact in self.picks.facts if fact.use is not None}.values()) if loss_key is not None else []

    def _flow(
        self, model: nn.Module, output: typing.Any, loss: torch.Tensor | None, weights: list[Weight], keys: dict[str, int], since: int
    ) -> dict[str, typing.Any]:
        wanted = _wanted(weights)
        missing = [w.name for w in wanted if w.grad == "none" and w.name in keys]
        whole = bool(missing) and all(w.grad == "none" for w in wanted)
        loss_key = self.trace.known_key(loss) if loss is not None else None
        trained = {w.name for w in wanted if w.grad == "ok"}
        constant = constant_terms(self.trace, loss_key, keys, trained)
        constant += number_terms(self.trace, loss_key, keys, trained)
        constant += [cut for cut in without_graph(self.trace, loss_key, keys, trained) if cut.site.span not in {other.site.span for other in constant}]
        if not missing and not draws(self.trace):
            return {"cuts": tuple(with_caller(self.trace, cut, loss_key, since) for cut in constant)} if constant else {}
        flow = Flow(model, self.trace, keys, loss, [t for _, t in output_leaves(output)], since)
        cuts, explained = flow.cuts(missing, whole and loss is not None and loss.grad_fn is None, idle(self.trace, loss_key))
        optimized = {w.name for w in weights if w.in_optimizer}
        cuts = [
            cut for cut in cuts
            if not (cut.reason in ("no-grad", "detach", "data") and follows_another(model, cut.weights, weights, bool(optimized & set(cut.weights))))
        ]  # fmt: skip
        cuts += [cut for cut in constant if cut.site.span not in {other.site.span for other in cuts}]
        cuts += [cut for cut in drawn(flow, {w.name for w in wanted if w.grad != "zero"}) if not set(cut.weights) & {name for other in cuts for name in other.weights}]
        unused = flow.unused([n for n in missing if n not in explained], owner_classes(model)) if not whole or not cuts else []
        return {"cuts": tuple(with_caller(self.trace, cut, loss_key, since) for cut in cuts), "unused": tuple(unused)}

    def losses(self, paddings: list[Padding], own: list[Padding] | None = None, count: int | None = None) -> tuple[tuple[LossCall, ...], list[InputFact]]:
        """The loss calls, with the labels at padded positions counted; and labels that `ignore_index` drops by mistake. `own`: the padding of the labels themselves; `count`: of samples."""
        calls, extra = [], []
        last, first = padded_lookups(self.trace, self.watch.lookups)
        looked = [one for one in last if not any(one.valid.shape == known.valid.shape for known in paddings)]
        targets = {id(op): (target, ignore, reduction) for op, target, ignore, reduction in self.watch.targets}
        for op, call in self.watch.losses:
            alone = False
            if id(op) in targets:
                target, ignore, reduction = targets[id(op)]
                reduction = "mean" if reduction == "none" and reduced_whole(self.trace, op.outs[0].key) is not None else reduction
                call = _with_padding(call, target, ignore, reduction, paddings)
                if not call.padded_counted:
                    call = _with_padding(call, target, ignore, reduction, looked)
                if own and not call.padded_counted:
                    call, alone = _with_padding(call, target, ignore, reduction, own), True
                extra += _ignored_class(call, target, ignore, [] if self._pad_word(call, ignore) else paddings) or ([] if paddings else _ignored_samples(call, target, ignore, count))
            elif id(op) in self.watch.dense:
                call = _with_padded_numbers(call, *self.watch.dense[id(op)], paddings)
            calls.append(dataclasses.replace(call, labels_made=self._labels_made(op, alone), built=criterion_built(call.site)) if call.padded_counted else call)
        return (*calls, *self.watch.again), extra + self._inverted([*paddings, *looked, *first]) + padded_picks(self.trace, self.watch.picked, self.watch.lookups) + \
            padded_frames(self.trace, self.watch.aligned, self.watch.packed, paddings)

    def _pad_word(self, call: LossCall, ignore: int | None) -> bool:
        """Words are predicted, and the one that is ignored is the one that pads: tokens that were not hidden are labelled so, and no text holds it."""
        return any(lookup.rows == call.classes and lookup.padding_idx == ignore for lookup in self.watch.lookups)

    def _labels_made(self, loss: Op, alone: bool) -> Site | None:
        """Where the labels were made, unless they are the very tokens that the model is given (`alone`: they are not): these have no other value for padding."""
        made = maker(self.trace, loss.ins[1].key) if len(loss.ins) > 1 else None
        inputs = self.trace.ancestors({lookup.op.ins[0].key for lookup in self.watch.lookups}, without=_shifts_inside)
        if made is None and len(loss.ins) > 1 and (alone or not self.trace.ancestors({loss.ins[1].key}) & inputs):
            given = given_by(self.trace, list(way_back(self.trace, loss.ins[1].key)), loss.ins[1].key)
            return self.trace.beforehand.made(given, copied=True) if given is not None and self.trace.beforehand is not None else None
        if made is None or made.place.user_code is None:
            return None
        if alone or not any(seen.key in inputs for seen in made.outs):
            return of_several(self.trace, made) or self.trace.site(made)
        copies = (op for op in way_back(self.trace, loss.ins[1].key) if op.name == "clone" and op.place.code is op.place.user_code)
        return next((self.trace.site(op) for op in copies), None)

    def _inverted(self, paddings: list[Padding]) -> list[InputFact]:
        """A mask of an attention that hides exactly the words, and keeps exactly the padding."""
        for padding in paddings:
            for op, hidden, mask in self.watch.hidden:
                site = self.trace.site(op)
                if site is None or hidden.shape[0] != padding.valid.shape[0]:
                    continue
                if padding.assumed and self.trace.known_key(padding.leaf.tensor) not in self.trace.ancestors({mask}):
                    continue  # a mask that the model makes of these ids tells as well as a declared pad id what is padding
                every = max(1, round(padding.valid.shape[1] / max(1, hidden.shape[1])))  # one step for every few positions, as a convolution leaves
                if torch.equal(hidden, padding.valid[:, ::every].to(hidden.device)):
                    row = padding.padded_rows[0]
                    text = (f"the mask that `{op.name}` is given hides the {int(hidden[row].sum())} positions of row {row} that hold data and keeps its "
                            f"{int((~hidden[row]).sum())} padded one{'s' * (int((~hidden[row]).sum()) != 1)}, and so on in each of the {hidden.shape[0]} rows")  # fmt: skip
                    given = padding.mask if padding.mask is not None and padding.mask.tensor.dim() > 1 else None
                    key = self.trace.known_key(given.tensor) if given is not None else None
                    way = polarity(self.trace, op, mask, {key}, given.name if given is not None else "")
                    return [InputFact("mask-inverted", op.name, text, site=site, polarity=way)]
        return []


def _shifts_inside(op: Op) -> bool:
    """A library's model makes the inputs of its decoder of the labels: those are labels all the same."""
    return op.name == "__setitem__" and origin_of_place(op) is Origin.LIBRARY


def _wanted(weights: list[Weight]) -> list[Weight]:
    """What the optimizer does not hold is not meant to be trained in this step."""
    return [w for w in weights if w.requires_grad and w.in_optimizer is not False]


def _finite(output: typing.Any, loss: torch.Tensor | None, states: dict[str, str] | None) -> bool | None:
    if loss is not None:
        return bool(loss.detach().isfinite().all()) and "nan" not in (states or {}).values()
    results = [t for _, t in output_leaves(output) if t.is_floating_point() or t.is_complex()]
    return not any(bool(t.detach().isnan().any()) for t in results) if results else None


def _with_padding(call: LossCall, target: torch.Tensor, ignore: int | None, reduction: str, paddings: list[Padding]) -> LossCall:
    for padding in paddings:
        hidden, laid = _hidden(target, padding)
        if hidden is None or laid is None or reduction == "none" or call.weighted:
            continue
        shifted = torch.cat([hidden[:, 1:], torch.zeros_like(hidden[:, :1])], 1)  # labels of the next token, as a model shifts them
        for where in (hidden, shifted):
            labels = laid[where.to(target.device)]
            counted = labels[labels != ignore]
            if counted.numel() == labels.numel():
                break
        # What a row's last word is asked for is padding, too, where labels are the next tokens and nothing else has that label.
        # All of them, and all alike: labels of another sequence of the same length would be mixed.
        if counted.numel() == labels.numel() >= 2 and counted.unique().numel() == 1 and (not padding.assumed or int(counted[0]) == padding.pad_id):
            alike, least = laid == counted[0], (hidden | shifted).to(target.device)
            beyond = alike & ~least  # a row that has one word more than it is shown of
            where = alike if bool((alike | ~least).all()) and not bool(beyond[:, :-1].any()) else where.to(target.device)
            return dataclasses.replace(call, padded_counted=int(where.sum()), pad_label=int(counted[0]), pad_label_real=int((alike & ~where).sum()))
    return call


def _with_padded_numbers(call: LossCall, given: torch.Tensor, target: torch.Tensor, paddings: list[Padding]) -> LossCall:
    """Targets that are zero at all padded positions and (unless they are flags) at no other, and predictions there that are something else."""
    for padding in paddings:
        valid = padding.valid.to(target.device)
        real, guessed = padding.laid(target), padding.laid(given)
        if padding.mask is None or not padding.right or call.weighted or real is None or guessed is None:
            continue
        real, guessed = real.reshape(*valid.shape, -1), guessed.reshape(*valid.shape, -1)
        if bool(real[~valid].any()) or not _all_given(call, real[valid], real[~valid].numel()) or not _counts(call, guessed[~valid]):
            continue
        return dataclasses.replace(call, padded_counted=int((~valid).sum()), pad_label=0, counted=valid.numel())
    return call


def _all_given(call: LossCall, real: torch.Tensor, there: int) -> bool:
    """Do all real positions have a target? Of zeros and ones, zero is one like any other; then it is no chance that all `there` is zero."""
    if not call.function.startswith("binary_cross_entropy") or not bool(((real == 0) | (real == 1)).all()):
        return bool((real != 0).any(-1).all())
    return (1 - float(real.mean())) ** there < CHANCE


def _counts(call: LossCall, guessed: torch.Tensor) -> bool:
    """Does the loss grow by what is predicted where the target is zero?"""
    least = math.log(NOTHING) if call.function.endswith("with_logits") else NOTHING if call.function.startswith("binary") else None
    return bool((guessed != 0 if least is None else guessed > least).any(-1).all())


def _hidden(target: torch.Tensor, padding: Padding) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Which labels stand at padded positions, if the labels run along this sequence (or one step later); and the labels laid out like these flags."""
    valid, time_first = padding.valid, padding.axis == 0
    if target.numel() == valid.numel() and (target.dim() == 1 or target.shape == (valid.T if time_first else valid).shape):
        hidden = ~valid
    elif valid.shape[1] > (2 if target.dim() == 1 else 1) and target.numel() == valid.numel() - valid.shape[0]:  # of two positions, they may be the rows' own
        hidden = ~valid[:, 1:]
    else:
        return None, None
    return hidden, target.reshape(hidden.shape[::-1]).T if time_first else target.reshape(hidden.shape)


def _ignored_class(call: LossCall, target: torch.Tensor, ignore: int | None, paddings: list[Padding]) -> list[InputFact]:
    """Labels that `ignore_index` drops at positions that hold data. The labels run along a sequence if all of them at its padded
    positions are ignored; and padding (it may be that of a shorter one) is at the end of rows, a class is anywhere."""
    if ignore is None or ignore < 0:
        return []
    found: list[InputFact] = []
    for padding in paddings:
        hidden, laid = _hidden(target, padding)
        if hidden is None or laid is None or padding.assumed or target.numel() != padding.valid.numel():
            continue
        inner = ~hidden
        inner[:, :-1] &= ~hidden[:, 1:]  # the last valid position's next token is padding: rightly ignored
        inner[:, -1] = False
        ignored = laid == ignore
        counted_later = (~ignored).flip(1).cumsum(1).flip(1) > 0
        dropped = ignored & inner.to(target.device)
        if not ignored[hidden.to(target.device)].all() or int(dropped.sum()) < 2 or not (dropped & counted_later).any():
            return []
        row, position = (dropped.T if padding.axis == 0 else dropped).nonzero()[0].tolist()
        text = f"`ignore_index={ignore}` drops {int(dropped.sum())} labels at positions that are not padding, the first at [{row}, {position}]"
        found.append(InputFact("ignored-class", "", text, ignore, (row, position), site=call.site, count=int(dropped.sum())))
    return found[:1]


def _ignored_samples(call: LossCall, target: torch.Tensor, ignore: int | None, count: int | None) -> list[InputFact]:
    """Whole samples that `ignore_index` drops, one label for each, because their class has that number."""
    if ignore is None or target.dim() != 1 or len(call.input.size) != 2 or target.numel() != count or not 0 <= ignore < (call.classes or 0) or not call.ignored or not call.counted:
        return []
    text = f"`ignore_index={ignore}` drops {call.ignored} of {target.numel()} samples: those of class {ignore}, which is one of the {call.classes} that the model has an output for"
    return [InputFact("ignored-class", "", text, ignore, site=call.site, count=call.ignored, made=criterion_built(call.site))]


def parameter_keys(trace: Trace, model: nn.Module) -> dict[str, int]:
    """Numbers for the model's parameters, given before the step so that uses of them are recognised."""
    return {name: trace.key(parameter) for name, parameter in model.named_parameters()}
