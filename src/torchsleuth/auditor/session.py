"""`audit`: one model, one batch, every experiment, one report. Order and budget of the experiments live here."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import time
import typing

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchsleuth.again.hushed import unlogged
from torchsleuth.again.kept import random_kept
from torchsleuth.auditor.gradients.backward import BackwardWatch
from torchsleuth.auditor.gradients.gradients import grad_states, is_lone_bias, optimizer_facts
from torchsleuth.auditor.gradients.looseleaves import loose_leaves
from torchsleuth.auditor.gradients.saturation import saturated
from torchsleuth.auditor.gradients.shared import shared_layers
from torchsleuth.auditor.inputs import preflight
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.beforehand import Beforehand
from torchsleuth.auditor.inputs.calling import arguments, autocast_here, loss_function
from torchsleuth.auditor.inputs.nested import words_padded
from torchsleuth.auditor.inputs.padded import Padding, batch_is_first, batch_is_second, known_padding
from torchsleuth.auditor.inputs.paddedbyuse import padded_by_comparison, padded_labels
from torchsleuth.auditor.inputs.timefirst import samples_by_layers
from torchsleuth.auditor.inputs.turnedmasks import transposed_masks
from torchsleuth.auditor.judge import report_of
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.laboratory.runner import Runner, unwrapped
from torchsleuth.auditor.laboratory.stirring import never_woken, still_zero
from torchsleuth.auditor.laboratory.trials import dropout_in_eval, may_drop, overfitted
from torchsleuth.auditor.laboratory.undisturbed import undisturbed
from torchsleuth.auditor.losses.magnitudes import with_first_values
from torchsleuth.auditor.observation import InputFact, Move, Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.operations.dropping import drawn_masks
from torchsleuth.auditor.operations.repeated import returned_twice
from torchsleuth.auditor.program.optimizers import at_rest
from torchsleuth.auditor.samples.mixing import batch_statistics_remark, mixing_moves
from torchsleuth.auditor.samples.order import order_moves
from torchsleuth.auditor.sequences.causality import Causality
from torchsleuth.auditor.sequences.choices import choice_moves
from torchsleuth.auditor.sequences.countedpositions import position_moves
from torchsleuth.auditor.sequences.injected import loop_moves
from torchsleuth.auditor.sequences.lastpositions import last_position_moves
from torchsleuth.auditor.sequences.neighbours import neighbour_moves
from torchsleuth.auditor.sequences.packedby import packed_moves
from torchsleuth.auditor.sequences.padding import padding_moves
from torchsleuth.auditor.sequences.pixels import pixel_moves
from torchsleuth.auditor.tracing.forwardpass import Forward
from torchsleuth.auditor.tracing.modestack import paused
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.stepview import StepView, parameter_keys
from torchsleuth.auditor.tracing.trace import tensors_in
from torchsleuth.errors import UsageError
from torchsleuth.model import RaisedException, Report
from torchsleuth.options import DEFAULT_BUDGET_SECONDS
from torchsleuth.uncollected import uncollected

PATIENCE_SECONDS = 2.0  # nothing is said about progress before that


class Audited(typing.NamedTuple):
    report: Report
    failing: typing.Callable[[], object] | None  # where the model could not be run: the same run once more


def audited(
    model: nn.Module,
    batch: typing.Any,
    *,
    loss_fn: typing.Callable[..., torch.Tensor] | None = None,
    target: typing.Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    causal: bool = False,
    overfit: bool = False,
    budget_s: float = DEFAULT_BUDGET_SECONDS,
) -> Audited:
    """Experiments on `model` with `batch`, given as the model takes it: a tensor, a tuple of arguments or a dict of keywords.

    `loss_fn(output)`, `loss_fn(output, target)` or `loss_fn(output, batch)` gives the loss; without it a result
    called `loss`, or a single number, is taken. `causal=True` says that no output may depend on later positions,
    where neither the loss nor a triangular mask says it. Nothing about the model is different afterwards.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"audit needs an nn.Module, not {type(model).__name__}")
    if loss_fn is not None and not callable(loss_fn):
        raise UsageError(f"loss_fn must be a function of the model's result, not {type(loss_fn).__name__}")
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise UsageError(f"optimizer must be one of torch.optim, not {type(optimizer).__name__}")
    with uncollected():
        return _audited(model, batch, loss_fn, target, optimizer, causal, overfit, budget_s, site_of(place_here(2)))


def audit(model: nn.Module, batch: typing.Any, **options: typing.Any) -> Report:
    """The report alone; `options` as above."""
    return audited(model, batch, **options).report


def _audited(
    model: nn.Module, batch: typing.Any, loss_fn: typing.Any, target: typing.Any, optimizer: typing.Any,
    causal: bool, overfit: bool, budget_s: float, where: Site | None,
) -> Audited:  # fmt: skip
    inner, taken = unwrapped(model)
    lazy = [name for name, p in inner.named_parameters() if is_lazy(p)]
    if lazy:
        raise UsageError(f"the model has lazy layers that have no weights yet ({', '.join(lazy[:3])}); call it once on a batch, then audit it")
    if any(p.is_meta for p in inner.parameters()) and all(p.is_meta for p in inner.parameters()):
        raise UsageError("the model is on the meta device: it has shapes and no numbers, and an audit looks at numbers")
    explicit, given = target is not None, target
    args, kwargs, target = arguments(inner, batch, target, loss_fn)
    call = Call(inner, args, kwargs)
    autocast = autocast_here(call)
    session = Session(inner, call, loss_function(loss_fn, batch, target, explicit), where, autocast, budget_s)
    if taken:
        session.notes.append(f"the model was audited without its wrapper ({taken})")
    session.runner.lent += tensors_in(target)
    session.given_optimizer = optimizer
    session.causal = causal
    session.beforehand = before = Beforehand({"batch": batch, "target": given}, loss_fn)
    session.audit(overfit)
    before.close()
    return Audited(report_of("audit", session.observation(), session.exception), session.once_more if session.exception is not None else None)


class Session:
    """The state of one audit. Each experiment adds to `fields`, which become the observation."""

    def __init__(
        self, model: nn.Module, call: Call, loss: typing.Callable | None, where: Site | None, autocast: typing.Any, budget_s: float
    ) -> None:
        self.model, self.call, self.loss, self.where = model, call, loss, where
        self.runner = Runner(model, autocast)
        self.runner.lent = [leaf.tensor for leaf in call.leaves]
        self.given_optimizer: torch.optim.Optimizer | None = None
        self.causal = False
        self.beforehand: Beforehand | None = None
        self.fields: dict[str, typing.Any] = {}
        self.notes: list[str] = []
        self.exception: RaisedException | None = None
        self.started = time.monotonic()
        self.budget_s = budget_s
        self._said = False
        self._forward: Forward | None = None
        self.paddings, self.pad_ids = self.attempt("the padding of the inputs", lambda: known_padding(call)) or ([], set())

    # -- the whole ----------------------------------------------------------------------------

    def audit(self, overfit: bool = False) -> None:
        with self._quick():
            self.fields["inputs"] = tuple(self.attempt("the inputs", lambda: preflight.batch_facts(self.call, self.pad_ids)) or ())
            self.fields["shared"] = tuple(shared_layers(self.model))
            step = self.step()
            self.fields["inputs"] = tuple(map(self._with_maker, self.fields["inputs"]))
            if step is not None:
                self.experiments(step)
                self.dropout_in_eval(step)
                if overfit:
                    self.overfit()

    def _with_maker(self, fact: InputFact) -> InputFact:
        leaf = self.call.leaf(fact.name)
        made = self.beforehand.made(leaf.tensor) if leaf is not None and fact.made is None and self.beforehand is not None else None
        return dataclasses.replace(fact, made=made) if made is not None else fact

    def experiments_after(self, step: StepView, fields: dict[str, typing.Any], begins: bool = False) -> None:
        """The experiments for a step that a running program took by itself; `fields` is what was seen of it, and `begins` what `batch_facts` is told."""
        self.runner.generators = [generator for generator, _ in step.trace.generators]
        self.fields.update(fields)
        before = self.attempt("the inputs", lambda: preflight.batch_facts(self.call, self.pad_ids, begins)) or []
        facts = [*before, *preflight.named_tables(list(fields.get("inputs", ())), self.call, self.model)]
        self.fields["inputs"] = tuple(preflight.with_beginnings(facts, self.call, step.trace, self.where))
        self.fields["shared"] = tuple(shared_layers(self.model))
        if any(not bool(p.detach().isfinite().all()) for p in self.model.parameters()):
            self.notes.append("experiments were not made: at the end of the program some parameters are not finite")
            return
        with self._quick():
            self.experiments(step)
            self.dropout_in_eval(step)

    @contextlib.contextmanager
    def _quick(self) -> typing.Iterator[None]:
        try:
            with random_kept(), unlogged(), uncollected():
                yield
        finally:
            if self._said:
                print("\r" + " " * 60 + "\r", end="", file=sys.stderr)

    def observation(self) -> Observation:
        name = type(self.model).__name__
        return Observation(name, self.where, training=self.model.training, notes=tuple(dict.fromkeys(self.notes)), **self.fields)

    def attempt(self, what: str, experiment: typing.Callable[[], typing.Any]) -> typing.Any:
        """The experiment's result, unless time is up or it cannot be made; then that is said."""
        elapsed = time.monotonic() - self.started
        if elapsed > self.budget_s:
            self.notes.append(f"not tested, the time budget of {self.budget_s:g} s was used up: {what}")
            return None
        if elapsed > PATIENCE_SECONDS and sys.stderr.isatty():
            self._said = True
            print(f"\r{'auditing: ' + what:<60}", end="", file=sys.stderr, flush=True)
        try:
            return experiment()
        except Exception as error:
            self.notes.append(f"{what} could not be tested: {type(error).__name__}: {_first_line(error)}")
            return None

    # -- the step -----------------------------------------------------------------------------

    def step(self) -> StepView | None:
        """Forward, loss and backward once, traced. None if the model cannot be run at all."""
        try:
            return self._step(closely=False)
        except _NotFinite:
            return self._step(closely=True)

    def _step(self, closely: bool) -> StepView | None:
        """`closely`: look at each result on the way for NaN and infinity. Where the loss is finite there is no need to."""
        view = StepView()
        view.finite.resting = not closely
        view.watch.refuses = True
        view.trace.beforehand = self.beforehand
        keys = parameter_keys(view.trace, self.model)
        parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        try:
            self.runner.run(
                self.call.args, self.call.kwargs, trace=view.trace, grad=True,
                then=lambda output: self._backward(view, keys, parameters, output),
            )  # fmt: skip
        except (_NotFinite, UsageError):
            raise
        except Exception as error:
            view.trace.change = None
            facts = [*view.watch.inputs, *preflight.crash_facts(self.call, view.trace, error)]
            facts = preflight.named_tables(facts, self.call, self.model)
            facts = facts or preflight.against_configuration(self.call, view.trace)
            self.fields["inputs"] = (*self.fields.get("inputs", ()), *facts)
            self.exception = RaisedException(type(error).__name__, str(error))
            what = "the model could not be run" if self._forward is None else "the loss and its gradients could not be computed"
            self.fields["crash"] = f"{what}: {type(error).__name__}: {_first_line(error)}"
            return None
        self.fields["inputs"] = (
            *self.fields.get("inputs", ()), *view.watch.inputs, *preflight.traced_facts(self.call, view.trace)
        )  # fmt: skip
        losses, extra = view.losses(self.paddings, padded_labels(self.call), self.call.batch_size)
        self.fields["losses"] = with_first_values(losses, self.model)
        self.fields["inputs"] += (*extra, *preflight.equal_samples(self.call, view.trace, view.watch.asked()), *transposed_masks(self.call, view.trace, view.watch.hidden))
        return view

    def _backward(self, view: StepView, keys: dict[str, int], parameters: dict[str, torch.Tensor], output: typing.Any) -> None:
        trace = view.trace
        inside = slice(0, len(trace.ops))
        self._forward = Forward(trace, len(trace.ops), output_leaves(output))
        loss = self._loss_of(output)
        if view.finite.resting and loss is not None and not math.isfinite(loss.detach()):
            raise _NotFinite
        states: dict[str, str] | None = None
        watch = BackwardWatch(trace)
        with paused(trace):
            if loss is not None and parameters:
                if loss.requires_grad:
                    states = self._states(loss, parameters)
                    if states is not None and set(states.values()) & {"zero", "nan"}:
                        watch.attach(loss)  # once more, looking at every node
                        torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
                        watch.detach()
                else:
                    states = dict.fromkeys(parameters, "none")
            optimized = self._optimized()
            self.fields.update(view.facts(self.model, output, loss, states, keys, optimized, self.call.batch_size, inside, optimized or ()))
            leaves = loose_leaves(self.model.modules(), trace, trace.known_key(loss) if loss is not None else None, (optimized or set()) | {id(leaf.tensor) for leaf in self.call.leaves})
            self.fields["unregistered"] += tuple(leaf.fact for leaf in leaves)
        self.fields["aliases"] += tuple(returned_twice(self.model, output, self.call, any(one.how == "dropped" for one in self.fields.get("unused", ()))))
        if states is not None and loss is not None and set(states.values()) & {"zero", "nan"}:
            self.zero_or_nan(states, watch, keys)
        if optimized is not None:
            self.fields["optimizer"] = tuple(optimizer_facts(self.model, self.given_optimizer, states, None, {}))
            if not self.fields["optimizer"]:
                self.fields["no_update"] = at_rest(self.given_optimizer, self.where)

    def _states(self, loss: torch.Tensor, parameters: dict[str, torch.Tensor]) -> dict[str, str] | None:
        """What each parameter's gradient is like; None where it can only be had by writing into `.grad`."""
        try:
            grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, retain_graph=True)
        except RuntimeError as error:
            if "use_reentrant=True" not in str(error):
                raise
            self.notes.append("gradients were not looked at: a checkpoint with `use_reentrant=True` gives them to `backward()` only")
            return None
        return dict(zip(parameters, grad_states(grads), strict=True))

    def once_more(self) -> None:
        """Forward and loss with nobody looking on, for who wants to see them fail."""
        self.runner.run(self.call.args, self.call.kwargs, grad=True, then=self._loss_of)

    def _loss_of(self, output: typing.Any) -> torch.Tensor | None:
        if self.loss is not None:
            loss = self.loss(output)
            if not isinstance(loss, torch.Tensor):
                raise UsageError(f"loss_fn gave {type(loss).__name__}, not a tensor")
            if loss.numel() != 1:
                raise UsageError(f"loss_fn gave a tensor of shape {list(loss.shape)}; the audit needs one number (its mean, say)")
            return loss
        for name, tensor in output_leaves(output):
            if tensor.numel() == 1 and tensor.dim() == 0 and (name.endswith(".loss") or name in ("output", "output[0]")):
                return tensor
        return None

    def _optimized(self) -> set[int] | None:
        if self.given_optimizer is None:
            return None
        return {id(p) for group in self.given_optimizer.param_groups for p in group["params"]}

    def zero_or_nan(self, states: dict[str, str], watch: BackwardWatch, keys: dict[str, int]) -> None:
        """Zero is often by design at the start (a layer that begins at zero). Does it stay, once no layer is zero?"""
        names = {n for n, s in states.items() if s == "zero" and not is_lone_bias(n, states)}
        if names:
            again = self.attempt("zero gradients", lambda: still_zero(names, self.runner, self.call, self._loss_of))
            asleep, trained = names - (again or set()), {n for n, s in states.items() if s == "ok"}
            if again is not None and any(self.model.get_parameter(n).dim() > 1 and not self.model.get_parameter(n).any() for n in asleep):
                again |= self.attempt("gradients of weights that are zero", lambda: never_woken(asleep, trained, self.runner, self.call, self._loss_of)) or set()
            names = again if again is not None else set()
        left = {n: s for n, s in states.items() if s == "nan" or n in names}
        if left:
            # A batch of which a mask selects nothing is one of many: only a program's later steps can tell.
            self.fields["vanished"] = tuple(fact for fact in watch.vanished(left, keys, self.model) if not fact.of_nothing)

    # -- experiments ----------------------------------------------------------------------------

    def experiments(self, step: StepView) -> None:
        if self.fields.get("not_finite") is not None:
            self.notes.append("experiments were not made: the loss of the step is not finite")
            return
        self.runner.regarded = step.regarded.get(id(self.model)) or None
        lab = self.attempt("running the model twice", lambda: undisturbed(self.runner, self.call, step, self._forward, self.notes.append))
        if lab is None:
            return
        lab.paddings = self.paddings = self.attempt("what is compared with the inputs", lambda: padded_by_comparison(self.call, step.trace, self.paddings)) or self.paddings
        lab.step, lab.called = step.trace, self.where
        moves: list[Move] = []
        for padding in [*self.paddings, *words_padded(self.call, self.pad_ids)]:
            moves += self.attempt("padding", lambda padding=padding: padding_moves(lab, padding) or position_moves(lab, padding) or choice_moves(lab, padding, step) or loop_moves(lab, padding)) or []
        moves = moves or self.attempt("packed sequences", lambda: packed_moves(lab)) or self.attempt("last positions", lambda: last_position_moves(lab, step)) or []
        moves += self.attempt("padded pixels", lambda: pixel_moves(lab)) or []
        order = Causality(self.call, step, lab, self.attempt, self.causal)
        self.fields["shifts"] = order.shifts()
        later = order.moves()
        moves = [move for move in moves if not _behind(move, later, self.paddings)] + later
        targets = [target for _, target, _, _ in step.watch.targets]
        evidence = batch_is_first(self.call, self.paddings, targets)
        second = batch_is_second(self.call, self.paddings, targets) if not evidence else None
        second = second or (order.samples_second() or samples_by_layers(lab) if not evidence else None)
        if second is not None or _compares_rows(step, self.call.batch_size):
            mixing, remark = self.attempt("batch mixing", lambda: mixing_moves(lab, evidence, second)) or ([], "")
        else:
            mixing, remark = [], f"batch mixing was not tested: the loss compares nothing for each of the {self.call.batch_size} rows of the input, which may be one sample"
        if not mixing and not remark and evidence and not moves:
            mixing = self.attempt("masks of other samples", lambda: neighbour_moves(lab)) or []
        if mixing:  # a neighbour that is shorter may show in a mixture of the samples, too
            moves = [move for move in moves if move.kind != "padding-shorter"]
        moves += mixing
        if remark:
            self.notes.append(remark)
        elif not mixing and lab.separate and second is None:
            moves += self.attempt("the place in the batch", lambda: order_moves(lab)) or []
        statistics = batch_statistics_remark(self.model)
        if statistics:
            self.notes.append(statistics)
        self.fields["moves"] = tuple(moves)
        self.fields["saturated"] = tuple(self.attempt("saturated activations", lambda: saturated(self.runner, self.call, step, self.where)) or ())

    def dropout_in_eval(self, step: StepView) -> None:
        if step.trace.ops and not step.trace.truncated and not any(may_drop(op) for op in step.trace.ops) and not drawn_masks(step.trace):
            return
        fact = self.attempt("dropout in eval mode", lambda: dropout_in_eval(self.runner, self.call))
        if fact is not None:
            self.fields["modes"] = (*self.fields.get("modes", ()), fact)

    def overfit(self, steps: int = 60) -> None:
        result = self.attempt("overfitting the batch", lambda: overfitted(self.model, self.call, self._loss_of, steps, self.runner.lent))
        if result is not None:
            self.fields["overfit"] = result
        elif not any("overfitting" in note for note in self.notes):
            self.notes.append("overfitting the batch was not tested: there is no loss, or nothing to train")


def _behind(move: Move, later: list[Move], paddings: list[Padding]) -> bool:
    """Padding at the end of rows, seen by an attention that sees all later positions: that is what is wrong, and hiding them hides it, too."""
    ends = {padding.leaf.name for padding in paddings if padding.right}
    sites = {one.site.span for one in later if one.site is not None and one.sequence == move.sequence}
    return move.sequence in ends and move.site is not None and move.site.span in sites


def _compares_rows(step: StepView, size: int | None) -> bool:
    """Does what a loss compares count the input's rows? (A bag of instances or the nodes of a graph may have one label together.)"""
    compared = [n for _, call in step.watch.losses for shape in (call.input, call.target) if shape is not None for n in shape.size]
    return not compared or not size or any(n and n % size == 0 for n in compared)


class _NotFinite(Exception):
    """The loss is not finite: look again, closely."""


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else ""
