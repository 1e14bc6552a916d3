"""The order of the experiments on one Function, from its own inputs to the unusual ones; the outcome is a `Trial`.

A right Function takes only the fast road: one pass and two more calls of forward per experiment. What
does not pass there is looked at closely (`truth`, `relation`, `mend`) before anything is said.
"""

from __future__ import annotations

import sys
import typing

import torch

from torchsleuth.checker import mechanics, quick, second, source, transforms, variants
from torchsleuth.checker.arguments import Arguments, arguments_for, dtype_name, in_dtypes
from torchsleuth.checker.bench import Bench, Evaluation, Problem, finite, is_float, length
from torchsleuth.checker.randomness import unchanged
from torchsleuth.checker.relation import relation_of_shape, relation_of_values
from torchsleuth.checker.subject import Run, Subject
from torchsleuth.checker.trial import Finding, Mend, Sample, TensorFact, Trial
from torchsleuth.checker.truth import TOLERANCE, agrees, differing, scales, tolerance_now, verdict
from torchsleuth.errors import UsageError

SEED = 20240229


class Experiment:
    """One Function on trial."""

    def __init__(self, function: type, given: tuple, *, seed: int = SEED, directions: int = 1, mend: bool = True, made: bool = False, only_given: bool = False):
        self.subject = Subject(function)
        self.generator = variants.Noise(seed)
        self.bench = Bench(self.subject, self.generator)
        self.given = given
        self.directions = max(directions, 1)
        self.mending = mend
        self.only_given = only_given
        self.made = made or not any(isinstance(value, torch.Tensor) for value in given)
        self.findings: list[Finding] = []
        self.cases: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.remarks: list[str] = []
        self.bad: set[int] = set()
        self.mends: list[Mend] = []
        self.double = "not-tried"
        self.study_run: Run | None = None
        self.originals: dict[int, torch.Tensor] = {}
        self.broken = False  # backward raises or returns the wrong number of gradients: no values to look at

    # -- the order ------------------------------------------------------------------------------

    def run(self, state: tuple) -> Trial:
        self.bench.state = state
        self.arguments = arguments_for(self.subject, self.given, self.generator.generator, self.made)
        self.remarks += self.arguments.remarks
        run = self.first_run()
        token = tolerance_now.set(self.tolerance_for(run))
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
        # Beyond the inputs as given, everything is tried on small copies of them, where forward takes those.
        self.study = self.arguments
        versions = [v._version if isinstance(v, torch.Tensor) else 0 for v in self.arguments.values]
        base = self.bench.evaluate(self.arguments, run=None if self.bench.writes else run)
        if versions != [v._version if isinstance(v, torch.Tensor) else 0 for v in self.arguments.values]:
            # backward writes into what forward saved: from now on forward gets copies.
            self.bench.writes = True
            self.study = self.arguments = self.arguments.with_values(self.originals.get(k, v) for k, v in enumerate(self.arguments.values))
            base = self.bench.evaluate(self.arguments)
        self.originals = {}
        if variants.elements(self.arguments) > variants.SMALL:
            self.study = self.small_copy() or self.arguments
        self.judge(base, "", individually=True)
        if self.only_given:
            return
        self.findings += mechanics.outputs(self.bench, self.arguments, run if not self.bench.writes else self.bench.forward(self.arguments))
        if not self.broken:
            written, base = mechanics.backward_writes(self.bench, self.study, self.study_run)
            self.findings += written
            if not written and (self.bad or not quick.all_at_once(self)):
                self.other_inputs()
                self.layouts(base)
            autocast = not self.findings and not self.bad
            if not (autocast and self.types_and_autocast(base)):
                self.types(base)
                autocast = not self.findings and not self.bad
                if autocast:
                    self.autocast()
            self.partial_needs(base)
            self.partial_outputs(base)
        if mechanics.has_attributes(run.context):
            self.findings += mechanics.kept_on_ctx(self.bench, self.study, self.bench.forward(self.study))
        if not self.broken and not self.bad and not any(f.kind in ("count", "saved-write", "grad-output-write") for f in self.findings):
            result = second.double_backward(self.bench, base)
            self.double = result.state
            self.findings += result.findings
            if transforms.has_jvp(self.bench):
                self.add("forward-mode (jvp)", transforms.jvp(self.bench, base))
            if transforms.has_vmap(self.bench):
                self.add("vmap", transforms.vmap(self.bench, self.study))

    def autocast(self) -> None:
        found, remark = transforms.autocast(self.bench, self.study)
        self.findings += found
        if remark:
            self.remarks.append(
                f"under autocast (bfloat16) backward raises {remark}; decorate forward and backward with "
                "torch.amp.custom_fwd and torch.amp.custom_bwd to use the Function there"
            )
        elif not found:
            self.cases.append(("autocast", "bfloat16"))

    def types_and_autocast(self, exact: Evaluation) -> bool:
        """One float32 pass under autocast; where autocast changes no type, it is the plain float32 pass as well."""
        dtypes = self.given_types()
        if any(d not in (None, torch.float32) and d.is_floating_point for d in dtypes):
            return False
        if self.bench.random or self.bench.writes or any(is_float(v) and v.dtype is not torch.float64 for v in self.study.values):
            return False
        short, other = transforms.under_autocast(self.bench, self.study, exact.grads)
        if other is None or other.problems or any(is_float(o) and o.dtype is not torch.float32 for o in other.run.outputs):
            return False
        for k in self.study.checked:
            want, got = exact.settled.get(k), other.settled.get(k)
            if want is None or got is None or not length(got.double() - want) <= 0.02 * length(want) + 1e-30:
                return False
        self.cases += [("float32", ""), ("autocast", "bfloat16")]
        return True

    def given_types(self) -> list:
        """The types the user has; float32 where those are float64."""
        given = [d for k, d in enumerate(self.arguments.dtypes) if k in self.arguments.checked and d is not None]
        if all(d is torch.float64 for d in given):
            return [torch.float32 if d is not None and d.is_floating_point else d for d in self.arguments.dtypes]
        return list(self.arguments.dtypes)

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
            run = self.in_given_types(error)
            arguments = self.arguments
            watch = mechanics.Watch(arguments.values)
        self.check_outputs(run)
        written = watch.written()
        self.originals = {k: copy for k, _, _, copy in watch.tensors}
        if written:
            self.findings += mechanics.unmarked_writes(bench, arguments, written, run)
            bench.writes = True
            self.arguments = arguments = arguments.with_values(
                next((copy for j, _, _, copy in watch.tensors if j == k), v) for k, v in enumerate(arguments.values)
            )
        if not unchanged(bench.state):
            bench.random = True
            self.remarks.append("forward draws random numbers: every experiment was run with the same ones")
        again = bench.forward(arguments)
        if not all(
            not isinstance(a, torch.Tensor) or (a.shape == b.shape and mechanics._equal(a, b))
            for a, b in zip(run.outputs, again.outputs, strict=True)
        ):
            self.findings.append(Finding("not-deterministic"))
            self.broken = True
            return run
        if not finite(run):
            again = self.with_finite_outputs(again)
            self.originals = {k: v.clone() for k, v in enumerate(self.arguments.values) if isinstance(v, torch.Tensor)}
        return again

    def in_given_types(self, error: Exception) -> Run:
        """forward does not take float64; does it take what the user has?"""
        arguments = in_dtypes(self.arguments, self.arguments.dtypes)
        if any(d not in (None, torch.float64) and d.is_floating_point for d in self.arguments.dtypes):
            try:
                run = self.bench.forward(arguments)
            except Exception as other:
                raise self.refusal(other) from None
            self.arguments = arguments
            self.remarks.append(f"forward does not take float64 ({second.described(error)}): checked in the inputs' own types")
            return run
        raise self.refusal(error) from None

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

    def small_copy(self) -> Arguments | None:
        for other in variants.smaller(self.arguments, self.generator):
            if variants.elements(other) > 16 * variants.LARGE:
                continue
            try:
                run = self.bench.forward(other)
            except Exception:
                continue
            if finite(run):
                self.study_run = run
                return other
        return None

    # -- judging one pass -------------------------------------------------------------------------

    def judge(self, evaluation: Evaluation, case: str, *, individually: bool = False, given: bool = True) -> bool:
        """Findings for one pass; True where it is right."""
        right = True
        for problem in evaluation.problems:
            if problem.kind == "none" and self.zero_derivative(evaluation, problem.input):
                continue
            if problem.input in self.bad or (problem.input < 0 and (self.broken or (case and self.bad))):
                continue  # what is known to be wrong is not held against it twice
            right = False
            self.findings.append(self.finding_of(problem, evaluation, case, given))
            if problem.input >= 0:
                self.bad.add(problem.input)
            elif not case:
                self.broken = problem.kind == "raises"
        if evaluation.problems and evaluation.problems[0].kind == "raises":
            return right
        sizes = scales(evaluation.arguments)
        inputs = [k for k in evaluation.arguments.checked if k not in self.bad and evaluation.settled.get(k) is not None]
        suspects: list[int] = []
        if individually:
            suspects = [k for k in inputs if not all(agrees(self.bench, evaluation, [k], sizes) for _ in range(self.directions))]
        elif inputs and not agrees(self.bench, evaluation, inputs, sizes):
            suspects = inputs
        for k in suspects:
            found = self.values_finding(evaluation, k, case, given)
            if found is not None:
                right = False
                self.findings.append(found)
                self.bad.add(k)
        if right:
            self.cases.append((case, evaluation.arguments.shapes()))
        return right

    def zero_derivative(self, evaluation: Evaluation, k: int) -> bool:
        """Whether None is the right answer: the outputs do not depend on this input."""
        if not evaluation.arguments.values[k].numel():
            return True
        result = verdict(self.bench, evaluation, k)
        return result.right

    def values_finding(self, evaluation: Evaluation, k: int, case: str, given: bool) -> Finding | None:
        result = verdict(self.bench, evaluation, k)
        name = self.arguments.names[k]
        if result.right:
            if result.why == "kink":
                self.remark(f"{name}: elements next to a kink of forward were left out of the comparison")
            elif result.why == "detached":
                self.remark(f"{name}: backward agrees with autograd through forward, which detaches a part of it")
            elif result.why == "unknown":
                self.remark(f"{name}: no reliable derivative of forward could be found{f' ({case})' if case else ''}; its gradient is not judged")
            return None
        if result.truth is None:
            return None
        returned, true = evaluation.settled[k].to(torch.float64), result.truth.gradient
        kind = "not-derivative" if self.deliberate(evaluation, k, result.zero) else "values"
        relation = relation_of_values(self.bench, evaluation, k, true) if not result.zero else None
        return self.completed(
            Finding(
                kind, k, case, evaluation.arguments.shapes(), relation=relation, sample=_sample(returned, true, result.wrong),
                error=float((returned - true).norm()) / max(float(true.norm()), 1e-300),
                wrong=int(result.wrong.sum()), total=result.wrong.numel(), reference=result.truth.source,
                ok_cases=tuple(name for name, _ in self.cases), given=given, detail="zero" if result.zero else "",
            ),
            evaluation, k,
        )  # fmt: skip

    def deliberate(self, evaluation: Evaluation, k: int, zero: bool) -> bool:
        """A surrogate on purpose: forward is flat there, or passes its input on unchanged."""
        if zero:
            return True
        value = evaluation.arguments.values[k]
        return any(is_float(o) and o.shape == value.shape and torch.equal(o, value) for o in evaluation.run.outputs)

    def finding_of(self, problem: Problem, evaluation: Evaluation, case: str, given: bool) -> Finding:
        shapes = evaluation.arguments.shapes()
        ok = tuple(name for name, _ in self.cases)
        if problem.kind == "raises":
            culprit = second.culprit_of_exception(problem.exception, self.subject.name, "raises")
            return Finding("raises", case=case, case_text=shapes, exception=second.described(problem.exception), culprit=culprit,
                           ok_cases=ok, given=given, detail=_deepest(problem.exception))  # fmt: skip
        if problem.kind == "count":
            return self.completed(
                Finding("count", case=case, case_text=shapes, returned_count=problem.returned, expected_count=problem.expected, given=given),
                evaluation, -1,
            )  # fmt: skip
        if problem.kind == "none" and (guard := self.guard_of(problem.input)) is not None:
            return Finding("needs-input-grad", problem.input, case, shapes, culprit=guard, detail="always", given=given)
        relation = relation_of_shape(self.bench, evaluation, problem.input) if problem.kind == "shape" else None
        shaped = problem.kind == "shape"
        return self.completed(
            Finding(
                problem.kind, problem.input, case, shapes, relation=relation,
                returned_shape=problem.returned if shaped else (), expected_shape=problem.expected if shaped else (),
                returned_dtype="" if shaped else str(problem.returned or ""), expected_dtype="" if shaped else str(problem.expected or ""),
                ok_cases=ok, given=given,
            ),
            evaluation, problem.input,
        )  # fmt: skip

    def completed(self, finding: Finding, evaluation: Evaluation, k: int) -> Finding:
        """The finding with the expression responsible and, where one was found, a change that mends it."""
        import dataclasses

        method = mechanics.methods(self.bench)[1]
        if method is None:
            return finding
        mend: Mend | None = None
        lines = executed_lines(self.bench, evaluation, self.subject.backward_code)
        if self.mending and finding.kind not in ("not-derivative", "none"):
            from torchsleuth.checker.mend import mended

            kind = finding.relation.kind if finding.relation is not None else finding.kind
            mend = mended(self.bench, method, evaluation, k, self.study, "shape" if finding.kind == "shape" else kind, self.mends)
            if mend is not None and mend not in self.mends:
                self.mends.append(mend)
        if k < 0:
            node = source.return_statement(method, lines)
            label = f"returns {finding.returned_count} gradients for {finding.expected_count} inputs"
        else:
            node = source.returned_expression(method, k, len(self.arguments.values), lines)
            label = f"the gradient for {self.arguments.names[k]}"
        culprit = source.culprit_of(method, node, label) if node is not None else None
        if mend is not None:
            culprit = dataclasses.replace(mend.culprit, label=label) if culprit is None or not _inside(mend.culprit, culprit) else culprit
        return dataclasses.replace(finding, culprit=culprit, mend=mend)

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    # -- other inputs -----------------------------------------------------------------------------

    def other_inputs(self) -> None:
        study, generator = self.study, self.generator
        self.unequal()
        for size, name in ((1, "a batch of 1"), (3, "a batch of 3"), (0, "size 0")):
            if size == 3 and variants.first_size(study) != 1:
                continue
            self.attempt(name, variants.with_batch(study, size, generator))
        self.attempt("other signs", variants.other_signs(study, generator), given=False)
        self.attempt("values five times as large", variants.wider(study), given=False)
        self.attempt("other masks", variants.other_masks(study, generator), given=False)
        for name, other in variants.other_constants(study):
            self.attempt(name, other, given=False)

    def unequal(self) -> None:
        for other in variants.reshapings(self.study, self.generator):
            if self.attempt("unequal dimensions", other, quiet=True):
                break

    def attempt(self, name: str, arguments: Arguments | None, *, given: bool = True, quiet: bool = False) -> bool:
        """Tries the Function on other inputs; False where forward refuses them."""
        if arguments is None or all(k in self.bad for k in self.study.checked):
            return False
        try:
            run = self.bench.forward(arguments)
        except Exception as error:
            if not quiet:
                self.refused.append((name, second.described(error)))
            return False
        if not finite(run):
            self.refused.append((name, "forward is not finite there"))
            return False
        self.judge(self.bench.evaluate(arguments, run=None if self.bench.writes else run), name, given=given)
        return True

    def layouts(self, base: Evaluation) -> None:
        """The same values in other memory orders: whatever comes out has to be the same."""
        study = self.study
        bench = self.bench
        if bench.random:
            # Random numbers are laid out with the memory: other layouts draw other ones, and each is judged for itself.
            self.attempt("non-contiguous inputs", variants.with_noncontiguous(study))
            self.attempt("expanded inputs", variants.with_expanded(study))
            return
        reference = bench.evaluate(study, base.grads) if bench.writes else base
        self.same_as(reference, "non-contiguous inputs", variants.with_noncontiguous(study), reference.grads)
        expanded = variants.with_expanded(study)
        if expanded is not None:
            dense = expanded.with_values(v.contiguous() if isinstance(v, torch.Tensor) else v for v in expanded.values)
            try:
                dense_pass = bench.evaluate(dense, reference.grads)
            except Exception:
                dense_pass = None
            if dense_pass is not None:
                self.same_as(dense_pass, "expanded inputs", expanded, reference.grads)
        grads = tuple(None if g is None else variants.noncontiguous(g) for g in reference.grads)
        if any(g is not None for g in grads):
            grads = tuple(g if n is None else n for g, n in zip(reference.grads, grads, strict=True))
            self.same_as(reference, "non-contiguous grad_output", study, grads)
        ones = tuple(None if g is None else torch.ones_like(g) for g in reference.grads)
        expanded_ones = tuple(None if g is None else g.new_ones(()).expand(g.shape) for g in reference.grads)
        self.same_as(bench.evaluate(study, ones), "expanded grad_output (as .sum() makes it)", study, expanded_ones)

    def same_as(self, reference: Evaluation, name: str, arguments: Arguments | None, grads: tuple) -> None:
        if arguments is None or any(p.kind == "raises" for p in reference.problems):
            return
        try:
            other = self.bench.evaluate(arguments, grads)
        except Exception as error:
            self.refused.append((name, second.described(error)))
            return
        if other.problems and other.problems[0].kind == "raises":
            if not self.bad:
                self.findings.append(self.finding_of(other.problems[0], other, name, True))
            return
        for a, b in zip(reference.run.outputs, other.run.outputs, strict=True):
            if is_float(a) and (a.shape != b.shape or bool(differing(b, a).any())):
                self.findings.append(Finding("forward-differs", case=name, case_text=arguments.shapes()))
                return
        for k in self.study.checked:
            want, got = reference.settled.get(k), other.settled.get(k)
            if k in self.bad or want is None:
                continue
            if got is None:
                problem = next((p for p in other.problems if p.input == k), None)
                if problem is not None:
                    self.findings.append(self.finding_of(problem, other, name, True))
                    self.bad.add(k)
                    return
                continue
            wrong = differing(got, want)
            if bool(wrong.any()):
                self.bad.add(k)
                self.findings.append(
                    self.completed(
                        Finding("layout", k, name, arguments.shapes(), sample=_sample(got, want, wrong), wrong=int(wrong.sum()),
                                total=wrong.numel(), error=float((got - want).norm()) / max(float(want.norm()), 1e-300),
                                ok_cases=("contiguous",)),
                        other, k,
                    )
                )  # fmt: skip
                return
        self.cases.append((name, arguments.shapes()))

    def types(self, exact: Evaluation) -> None:
        """The types the user has, where they are not float64."""
        dtypes = self.given_types()
        if any(is_float(v) and v.dtype is not torch.float64 for v in self.study.values):
            return
        name = " and ".join(sorted({dtype_name(d) for d in dtypes if d is not None and d.is_floating_point}))
        arguments = in_dtypes(self.study, dtypes)
        try:
            run = self.bench.forward(arguments)
            short = tuple(None if g is None else g.to(o.dtype) for g, o in zip(exact.grads, run.outputs, strict=True))
            other = self.bench.evaluate(arguments, short, run=None if self.bench.writes or self.bench.random else run)
        except Exception as error:
            self.refused.append((name, second.described(error)))
            return
        problem = next((p for p in other.problems if p.input not in self.bad and p.kind not in ("none", "count")), None)
        if problem is not None:
            if not any(f.kind == problem.kind and f.input == problem.input for f in self.findings):
                self.findings.append(self.finding_of(problem, other, name, True))
            return
        kinds = {o.dtype for o in run.outputs if is_float(o)} | {d for d in dtypes if d is not None and d.is_floating_point}
        bound = 0.2 if kinds & {torch.float16, torch.bfloat16} else 0.02
        for k in self.study.checked:
            want, got = exact.settled.get(k), other.settled.get(k)
            if want is None or got is None or k in self.bad:
                continue
            error = float((got.double() - want).norm()) / max(float(want.norm()), 1e-30)
            if error > bound:
                from torchsleuth.checker.truth import through_forward

                fair = through_forward(self.bench, other).get(k)
                fair_error = float((fair.double() - want).norm()) / max(float(want.norm()), 1e-30) if fair is not None else 1.0
                if fair_error < bound / 5:
                    self.bad.add(k)
                    self.findings.append(self.completed(Finding("precision", k, name, error=error, detail=f"{fair_error:.1g}"), other, k))
                    return
                self.remark(f"in {name} the gradient for {self.arguments.names[k]} is off by {error:.1g}, and so is autograd's: it is a matter of rounding")
                return
        self.cases.append((name, arguments.shapes()))

    def partial_needs(self, base: Evaluation) -> None:
        """Each input requiring grad alone: `needs_input_grad` read at the right index."""
        study = self.study
        if len(study.values) < 2 or not base.run.context._asked:
            return
        for k in study.checked:
            if k in self.bad:
                continue
            needs = tuple(j == k for j in range(len(study.values)))
            alone = self.bench.evaluate(study, base.grads, needs)
            problem = next((p for p in alone.problems if p.kind == "raises"), None)
            if problem is not None:
                self.findings.append(self.finding_of(problem, alone, f"only {study.names[k]} requiring grad", True))
                return
            got, want = alone.settled.get(k), base.settled.get(k)
            if want is None or (got is not None and not bool(differing(got, want).any())):
                continue
            if got is None and not bool((want != 0).any()):
                continue
            culprit = self.guard_of(k)
            if culprit is None and (method := mechanics.methods(self.bench)[1]) is not None:
                node = source.returned_expression(method, k, len(study.values))
                culprit = source.culprit_of(method, node, f"the gradient for {study.names[k]}") if node is not None else None
            self.findings.append(Finding("needs-input-grad", k, f"only {study.names[k]} requiring grad", culprit=culprit,
                                         detail="none" if got is None else "values"))  # fmt: skip
            self.bad.add(k)
        if len(study.checked) > 1:
            self.cases.append(("each input requiring grad alone", ""))

    def guard_of(self, k: int):
        """Where backward asks ctx.needs_input_grad about another input before it computes gradient k."""
        method = mechanics.methods(self.bench)[1]
        node = source.needs_guard(method, k, len(self.arguments.values)) if method else None
        label = f"decides about the gradient for {self.arguments.names[k]} (input {k})"
        return source.culprit_of(method, node, label) if node is not None else None

    def partial_outputs(self, base: Evaluation) -> None:
        """Each output used alone: the gradients of the others are zeros, or None if they are not materialised."""
        live = [o for o, g in enumerate(base.grads) if g is not None]
        if len(live) < 2:
            return
        total: dict[int, torch.Tensor] = {}
        for o in live:
            grads = tuple(g if j == o else None for j, g in enumerate(base.grads))
            alone = self.bench.evaluate(self.study, grads)
            if alone.problems and alone.problems[0].kind == "raises":
                self.findings.append(self.finding_of(alone.problems[0], alone, f"only output {o} used", True))
                return
            for k, g in alone.settled.items():
                if g is not None:
                    total[k] = total[k] + g if k in total else g
        for k in self.study.checked:
            want = base.settled.get(k)
            if k in self.bad or want is None:
                continue
            got = total.get(k)
            if got is None or bool(differing(got, want).any()):
                self.bad.add(k)
                self.findings.append(self.completed(Finding("not-linear", k, "each output used alone"), base, k))
        self.cases.append(("each output used alone", ""))

    # -- the result -------------------------------------------------------------------------------

    def trial(self, run: Run) -> Trial:
        outputs = tuple(
            TensorFact(o, "output" if len(run.outputs) == 1 else f"output {o}", True, dtype_name(v.dtype), tuple(v.shape), str(v.device))
            for o, v in enumerate(run.outputs) if isinstance(v, torch.Tensor)
        )  # fmt: skip
        code = getattr(self.subject.backward_code, "__code__", None) or getattr(self.subject.forward_code, "__code__", None)
        first = self.arguments.values[self.arguments.checked[0]]
        order = {id(f): n for n, f in enumerate(self.findings)}
        return Trial(
            self.subject.name, source.shown_file(code.co_filename) if code else "", code.co_firstlineno if code else 0,
            self.arguments.facts, outputs, dtype_name(first.dtype), str(first.device), self.directions, self.tolerance_for(run),
            self.subject.evaluations, tuple(dict.fromkeys(self.cases)), tuple(dict.fromkeys(self.refused)), self.double,
            tuple(sorted(self.findings, key=lambda f: order[id(f)])), (), tuple(dict.fromkeys(self.remarks)),
        )  # fmt: skip


def _sample(returned: torch.Tensor, true: torch.Tensor, wrong: torch.Tensor) -> Sample | None:
    gap = torch.where(wrong, (returned - true).abs().nan_to_num(float("inf")), torch.zeros_like(true))
    if not gap.numel():
        return None
    position = int(gap.reshape(-1).argmax())
    index = []
    rest = position
    for n in reversed(true.shape):
        index.append(rest % n)
        rest //= n
    return Sample(tuple(reversed(index)), float(returned.reshape(-1)[position]), float(true.reshape(-1)[position]))


def _deepest(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_name if trace is not None else ""


def _inside(inner: typing.Any, outer: typing.Any) -> bool:
    a, b = inner.span, outer.span
    return (b.line, b.column) <= (a.line, a.column) and (a.end_line, a.end_column) <= (b.end_line, b.end_column)


def executed_lines(bench: Bench, evaluation: Evaluation, function: typing.Any) -> frozenset[int] | None:
    """The lines of backward that run for these inputs, seen by running it once more."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines: set[int] = set()

    def local(frame, event, argument):
        lines.add(frame.f_lineno)
        return local

    def trace(frame, event, argument):
        return local(frame, event, argument) if frame.f_code is code else None

    run = bench.forward(evaluation.arguments)
    grads = tuple(
        torch.zeros_like(o) if g is None and isinstance(o, torch.Tensor) else g for g, o in zip(evaluation.grads, run.outputs, strict=True)
    )
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with torch.no_grad():
            bench.subject.backward(run.context, grads)
    except Exception:
        pass
    finally:
        sys.settrace(before)
    return frozenset(lines) or None
