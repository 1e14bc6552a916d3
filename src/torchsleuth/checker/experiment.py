"""The order of the experiments on one Function, from its own inputs to the unusual ones; the outcome is a `Trial`.

A right Function takes only the fast road: one pass and two more calls of forward per experiment. What
does not pass there is looked at closely (`truth`, `relation`, `mend`) before anything is said.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

import torch

from torchsleuth.checker import mechanics, quick, second, source, transforms, usage, variants
from torchsleuth.checker.arguments import Arguments, arguments_for, dtype_name, in_dtypes, tensor_fact
from torchsleuth.checker.bench import Evaluation, finite, is_float
from torchsleuth.checker.conditions import Conditions
from torchsleuth.checker.randomness import unchanged
from torchsleuth.checker.subject import Run
from torchsleuth.checker.trial import Finding, Trial
from torchsleuth.checker.truth import TOLERANCE, tolerance_now
from torchsleuth.errors import UsageError
from torchsleuth.model import Culprit

SEED = 20240229


class Experiment(Conditions):
    """One Function on trial."""

    def __init__(
        self, function: type, given: tuple, *, seed: int = SEED, directions: int = 1, mend: bool = True, made: bool = False, only_given: bool = False
    ):
        super().__init__(function, given, seed=seed, directions=directions, mend=mend, made=made)
        self.only_given = only_given

    # -- the order ------------------------------------------------------------------------------

    def run(self, state: tuple) -> Trial:
        self.bench.state = state
        self.arguments = arguments_for(self.subject, self.given, self.generator, self.made)
        self.remarks += self.arguments.remarks
        run = self.first_run()
        self.tolerance = self.tolerance_for(run)
        token = tolerance_now.set(self.tolerance)
        try:
            with torch.no_grad():
                self.on_trial(run)
        finally:
            tolerance_now.reset(token)
        return self.trial(run)

    def on_trial(self, run: Run) -> None:
        if not self.subject.has_backward:
            self.findings.append(Finding("no-backward"))
            return
        given = self.bench.evaluate(self.arguments, run=None if self.bench.writes else run)
        if self.originals and any([not mechanics.same_values(self.arguments.values[k], copy) for k, copy in self.originals.items()]):
            run = self.written_unseen() or run
            given = self.bench.evaluate(self.arguments)
        self.originals = {}
        if given.problems and given.problems[0].kind == "raises":
            given = self.backward_in_given_types(given)
            self.refuse_isolation(given)
        self.batched = variants.leading(self.arguments, run.outputs)
        self.square = any([isinstance(o, torch.Tensor) and len(set(o.shape)) < o.ndim for o in run.outputs])
        self.judge(given, "", individually=True)
        if self.only_given:
            return
        last = run if not self.bench.writes else self.bench.forward(self.arguments)
        unmarked = {f.input for f in self.findings if f.kind == "unmarked-write"}
        self.findings += [f for f in mechanics.outputs(self.bench, self.arguments, last) if f.kind != "view" or f.input not in unmarked]
        together = None
        if not self.broken:
            together = quick.all_at_once(self) if not self.bad else None
            if together is None and not self.writes_of_backward():
                self.other_inputs()
                self.layouts(self.base)
            if not self.bad:
                self.other_flags()
            if self.made and not self.bad and variants.elements(self.study) <= variants.SMALL and not _squares(self.study):
                # Guessed sizes are small: one window, one block, one segment hides where the next one lies.
                self.attempt("sizes twice as large", variants.doubled(self.study, self.generator), quiet=True, given=False)
                # And large ones lie outside of a margin.
                self.attempt("values a fifth as large", variants.narrower(self.study), quiet=True, given=False)
            autocast = not self.findings and not self.bad
            if not (autocast and self.types_and_autocast(together.evaluation if together else self.base, given)):
                self.types(self.base)
                autocast = not self.findings and not self.bad
                if autocast:
                    self.autocast()
            self.partial_needs(given)
            self.partial_outputs(given)
        if mechanics.has_attributes(run.context):
            self.findings += mechanics.kept_on_ctx(self.bench, self.study, self.bench.forward(self.study))
        self.beside_surrogates()
        if not self.broken and not self.bad and not self.convention and not any(f.kind in ("count", "saved-write", "grad-output-write") for f in self.findings):
            self.further_derivatives(together)

    # Beyond the inputs as given, everything is tried on small copies of them, where forward takes those.

    @functools.cached_property
    def study(self) -> Arguments:
        """A small copy of the inputs on the CPU, which forward has taken; else the inputs themselves."""
        cpu = self.on_cpu()
        return (self.small_copy(cpu) or cpu) if variants.elements(self.arguments) > variants.SMALL else cpu

    def study_untried(self) -> Arguments:
        """The small copy to try first; whether forward takes it is still to be seen."""
        if "study" in self.__dict__:
            return self.study
        if variants.elements(self.arguments) <= variants.SMALL:
            return self.on_cpu()
        return next(self.small_copies(self.on_cpu()), None) or self.study

    @functools.cached_property
    def base(self) -> Evaluation:
        """One pass on the study."""
        run = self.study_run if not self.bench.writes and not self.bench.random else None
        return self.bench.evaluate(self.study, run=run)

    def writes_of_backward(self) -> bool:
        written, self.base = mechanics.backward_writes(self.bench, self.study, self.study_run)
        self.findings += written
        return bool(written)

    def further_derivatives(self, together: quick.Together | None) -> None:
        if together is not None and together.double:
            self.double = together.double
        else:
            result = second.double_backward(self.bench, self.base)
            self.double = result.state
            self.findings += result.findings
        if transforms.has_jvp(self.bench):
            self.add("forward-mode (jvp)", transforms.jvp(self.bench, self.base))
        if transforms.has_vmap(self.bench):
            self.add("vmap", transforms.vmap(self.bench, self.study))

    def beside_surrogates(self) -> None:
        """Where forward is flat in one input, or rounds it, the gradients of the others belong to the same surrogate.

        Not one that is the derivative in some elements, zero where that is, and the derivative in all of them with one
        expression changed: that was meant to be it. (A surrogate gives a gradient where the derivative has none.)
        """
        if any(f.kind == "not-derivative" and f.detail in ("zero", "rounds", "steps") for f in self.findings):
            self.findings = [
                dataclasses.replace(f, kind="not-derivative", detail="beside", mend=None, culprit=self.returned(f))
                if f.kind == "values" and (f.mend is None or not f.partly)
                else f
                for f in self.findings
            ]

    def returned(self, finding: Finding) -> Culprit | None:
        """The expression that is returned for an input, whatever change would mend it."""
        method = mechanics.methods(self.bench)[1]
        node = source.returned_expression(method, finding.input, len(self.arguments.values)) if method is not None else None
        return source.culprit_of(method, node, f"the gradient for {self.arguments.names[finding.input]}") if node is not None else finding.culprit

    def add(self, name: str, found: list[Finding]) -> None:
        self.findings += found
        if not found:
            self.cases.append((name, self.study.shapes()))

    # -- the first run: what kind of forward is this? ---------------------------------------------

    def first_run(self) -> Run:
        bench, arguments = self.bench, self.arguments
        watch = mechanics.Watch(arguments.values)
        try:
            run = bench.forward(arguments)
        except Exception as error:
            run, watch = self.in_given_types(error)
            arguments = self.arguments
        self.check_outputs(run)
        self.originals = {k: copy for k, _, _, copy in watch.tensors}
        drawn = not unchanged(bench.state)
        # What is written past the version counter shows in the values, and those are compared after backward.
        if written := watch.written() if drawn else watch.counted():
            arguments = self.protected(arguments, written, run)
        if drawn:
            bench.random = True
            self.remarks.append("forward draws random numbers, so it is not deterministic by itself; every experiment was run with the same ones")
        if bench.writes or bench.random:
            again = bench.forward(arguments)
            if not self.same_outputs(run, again):
                self.findings.append(self.not_deterministic())
                self.broken = True
                return run
            run = again
        if not finite(run):
            run = self.with_finite_outputs(run)
            self.originals = {k: v.clone() for k, v in enumerate(self.arguments.values) if isinstance(v, torch.Tensor)}
        return run

    def protected(self, arguments: Arguments, written: list[int], run: Run) -> Arguments:
        """forward writes into its inputs: from now on it gets copies."""
        found, remarks = mechanics.unmarked_writes(self.bench, arguments, written, run)
        self.findings += found
        self.remarks += remarks
        self.bench.writes = True
        self.arguments = arguments.with_values(self.originals.get(k, v) for k, v in enumerate(arguments.values))
        return self.arguments

    def written_unseen(self) -> Run | None:
        """The inputs are not what they were, and no version says so: forward on copies tells whether it was forward, else it was backward."""
        copies = self.arguments.with_values(self.originals[k].clone() if k in self.originals else v for k, v in enumerate(self.arguments.values))
        watch = mechanics.Watch(copies.values)
        run = self.bench.forward(copies)
        if written := watch.written():
            self.protected(copies, written, run)
            return self.bench.forward(self.arguments)
        # backward writes into what forward saved: from now on forward gets copies.
        self.bench.writes = True
        self.arguments = self.arguments.with_values(self.originals.get(k, v) for k, v in enumerate(self.arguments.values))
        return None

    def in_given_types(self, error: Exception) -> tuple[Run, mechanics.Watch]:
        """forward does not take float64; does it take what the user has?"""
        arguments = in_dtypes(self.arguments, self.arguments.dtypes)
        if any(d not in (None, torch.float64) and d.is_floating_point for d in self.arguments.dtypes):
            watch = mechanics.Watch(arguments.values)
            try:
                run = self.bench.forward(arguments)
            except Exception as other:
                raise self.refusal(other) from None
            self.arguments = arguments
            self.remarks.append(f"forward does not take float64 ({second.described(error)}): checked in the inputs' own types")
            return run, watch
        raise self.refusal(error) from None

    def backward_in_given_types(self, given: Evaluation) -> Evaluation:
        """backward does not take float64; does it take what the user has? Then that is what is checked."""
        if not any(d not in (None, torch.float64) and d.is_floating_point for d in self.arguments.dtypes) or self.bench.random:
            return given
        arguments = in_dtypes(self.arguments, self.arguments.dtypes)
        try:
            other = self.bench.evaluate(arguments)
        except Exception:
            return given
        if any(problem.kind == "raises" for problem in other.problems):
            return given
        self.remarks.append(f"backward does not take float64 ({second.described(given.problems[0].exception)}): checked in the inputs' own types")
        self.arguments = arguments
        self.tolerance = self.tolerance_for(other.run)
        tolerance_now.set(self.tolerance)
        return other

    def refuse_isolation(self, given: Evaluation) -> None:
        """A backward that the engine runs and that fails when it is called by itself is not one to be judged by calling it."""
        error = given.problems[0].exception if given.problems and given.problems[0].kind == "raises" else None
        if error is not None and mechanics.runs_in_engine(self.bench, self.arguments):
            raise UsageError(f"{self.subject.name}: backward runs in autograd and not outside it ({second.described(error)})")

    def refusal(self, error: Exception) -> UsageError:
        where = second.culprit_of_exception(error, self.subject.name, "")
        place = f" at {where.span.file}:{where.span.line}: `{where.source.strip()}`" if where else ""
        return UsageError(
            f"{self.subject.name}.forward raises {second.described(error)}{place}. Inputs: {self.arguments.shapes()}"
        )

    def check_outputs(self, run: Run) -> None:
        name = self.subject.name
        if isinstance(run.returned, (list, dict)):
            kind = type(run.returned).__name__
            raise UsageError(
                f"{name}.forward returns a {kind}: autograd tracks only a tensor or a tuple of tensors, "
                f"so no gradient flows through it at all. Return a tuple"
            )
        tensors = [o for o in run.outputs if isinstance(o, torch.Tensor)]
        if not tensors:
            kinds = ", ".join(type(o).__name__ for o in run.outputs)
            raise UsageError(f"{name}.forward returns {kinds}, not a tensor: there is nothing to differentiate")
        complex_one = next((o for o in tensors if o.is_complex()), None)
        if complex_one is not None:
            raise UsageError(f"{name}.forward returns a complex tensor ({dtype_name(complex_one.dtype)}); complex outputs are not checked")
        if any(map(is_float, tensors)) and not any(map(run.carries_gradient, tensors)):
            raise UsageError(f"{name} marks every output as non-differentiable: there is no gradient to check")
        if not any(is_float(o) for o in tensors):
            kinds = ", ".join(dtype_name(o.dtype) for o in tensors)
            raise UsageError(f"{name}.forward returns only {kinds}: integer outputs have no gradient")

    def with_finite_outputs(self, run: Run) -> Run:
        """Random inputs outside forward's domain are drawn again inside it; the user's own are left alone."""
        if self.made:
            for change in (lambda v: v.abs() + 0.1, torch.sigmoid, lambda v: v.abs() + 1.1):
                other = self.arguments.with_values(
                    change(v) if k in self.arguments.checked else v for k, v in enumerate(self.arguments.values)
                )
                try:
                    again = self.bench.forward(other)
                except Exception:
                    continue
                if finite(again):
                    self.arguments = other
                    self.remarks.append("forward is not finite on normal random inputs: positive ones were used")
                    return again
        self.remarks.append("forward gives NaN or infinity for some of these inputs: only finite elements were compared")
        return run

    def tolerance_for(self, run: Run) -> float:
        kinds = {o.dtype for o in run.outputs if is_float(o)} | {self.arguments.values[k].dtype for k in self.arguments.checked}
        if kinds & {torch.float16, torch.bfloat16}:
            return 5e-2
        return 2e-3 if torch.float32 in kinds else TOLERANCE

    def on_cpu(self) -> Arguments:
        """The inputs on the CPU, where experiments can do no harm, if forward runs there; else as they are."""
        if self.arguments.values[self.arguments.checked[0]].is_cpu:
            return self.arguments
        other = self.arguments.with_values(v.cpu() if isinstance(v, torch.Tensor) else v for v in self.arguments.values)
        try:
            run = self.bench.forward(other)
        except Exception as error:
            self.remarks.append(f"forward does not run on the CPU ({second.described(error)}): fewer sizes were tried, and no change to the source")
            return self.arguments
        return other if all(o.device.type == "cpu" for o in run.outputs if isinstance(o, torch.Tensor)) else self.arguments

    def small_copies(self, arguments: Arguments) -> typing.Iterator[Arguments]:
        for other in variants.smaller(arguments, self.generator):
            if other is not None and variants.elements(other) <= 16 * variants.LARGE:
                yield other

    def small_copy(self, arguments: Arguments) -> Arguments | None:
        for other in self.small_copies(arguments):
            try:
                run = self.bench.forward(other)
            except Exception:
                continue
            if finite(run):
                self.study_run = run
                return other
        return None

    # -- the result -------------------------------------------------------------------------------

    def trial(self, run: Run) -> Trial:
        outputs = tuple([
            tensor_fact(o, "output" if len(run.outputs) == 1 else f"output {o}", v.dtype, v.shape, v.device)
            for o, v in enumerate(run.outputs) if isinstance(v, torch.Tensor)
        ])  # fmt: skip
        code = getattr(self.subject.backward_code, "__code__", None) or getattr(self.subject.forward_code, "__code__", None)
        first = self.arguments.values[self.arguments.checked[0]]
        return Trial(
            self.subject.name, source.shown_file(code.co_filename) if code else "", code.co_firstlineno if code else 0,
            self.arguments.facts, outputs, dtype_name(first.dtype), str(first.device), self.directions, self.tolerance,
            self.subject.evaluations, tuple(dict.fromkeys(self.cases)), tuple(dict.fromkeys(self.refused)), self.double,
            tuple(self.findings), (), tuple(dict.fromkeys(self.remarks)),
            any(f.kind in ("double-backward", "double-backward-raises") for f in self.findings) and usage.takes_second_derivatives(self.subject.function),
        )  # fmt: skip


def _squares(arguments: Arguments) -> bool:
    """Whether there is a matrix with as many rows as columns: with rows repeated it would have no inverse."""
    return any(v.ndim > 1 and v.shape[-1] == v.shape[-2] for v in arguments.values if isinstance(v, torch.Tensor))
