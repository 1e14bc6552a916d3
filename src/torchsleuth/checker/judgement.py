"""Judging one pass: from a gradient that is not right to a finding with its relation, its line and its mend."""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.checker import mechanics, origins, second, slices, source, surrogates, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, Problem, finite
from torchsleuth.checker.factors import of_sizes
from torchsleuth.checker.grouping import located
from torchsleuth.checker.mend import in_other_places, mended
from torchsleuth.checker.parts import piece_of, scaled_part
from torchsleuth.checker.randomness import random_state, unchanged
from torchsleuth.checker.relation import UNKNOWN, relation_of_shape, relation_of_values, same
from torchsleuth.checker.subject import Run, Subject
from torchsleuth.checker.trial import Finding, Mend, Relation, Sample
from torchsleuth.checker.truth import Verdict, agrees, at_a_glance, scales, true_gradient, verdict
from torchsleuth.model import Role


class Judge:
    """A Function with its findings so far; what is known to be wrong (`bad` inputs) is not found twice."""

    arguments: Arguments  # the inputs as given
    study: Arguments  # a small copy of them, where forward takes one

    def __init__(self, function: type, given: tuple, *, seed: int, directions: int, mend: bool, made: bool):
        self.subject = Subject(function)
        self.generator = variants.Noise(seed)
        self.bench = Bench(self.subject, self.generator)
        self.given = given
        self.directions = max(directions, 1)
        self.mending = mend
        self.made = made or not any(isinstance(value, torch.Tensor) for value in given)
        self.findings: list[Finding] = []
        self.cases: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.remarks: list[str] = []
        self.bad: set[int] = set()
        self.mends: list[Mend] = []
        self.in_vain = False  # a change that mends a gradient was looked for and not found
        self.convention = False  # the derivative is one by convention, not that of forward's values
        self.double = "not-tried"
        self.study_run: Run | None = None
        self.originals: dict[int, torch.Tensor] = {}
        self.sizes: dict[int, float] = {}  # of the inputs as given
        self.batched: tuple[int, ...] = ()  # the tensors whose first dimension is the batch
        self.square = False  # an output has two dimensions of one size
        self.broken = False  # backward raises or returns the wrong number of gradients: no values to look at

    def judge(self, evaluation: Evaluation, case: str, *, individually: bool = False, given: bool = True) -> bool:
        """Findings for one pass; True where it is right."""
        right = True
        if individually and any(p.kind in ("none", "unexpected", "count") for p in evaluation.problems) and self.misplaced(evaluation):
            return False
        for problem in evaluation.problems:
            if problem.kind == "none" and self.zero_derivative(evaluation, problem.input):
                continue
            if problem.input in self.bad or (problem.input < 0 and (self.broken or (case and self.bad))):
                continue  # what is known to be wrong is not held against it twice
            if case and any(f.kind == problem.kind == "count" for f in self.findings):
                continue
            right = False
            self.findings.append(self.finding_of(problem, evaluation, case, given))
            if problem.input >= 0:
                self.bad.add(problem.input)
            elif not case:
                self.broken = problem.kind == "raises"
        if evaluation.problems and evaluation.problems[0].kind == "raises":
            return right
        sizes = scales(evaluation.arguments)
        if individually:
            self.sizes = sizes
        inputs = [k for k in evaluation.arguments.checked if k not in self.bad and evaluation.settled.get(k) is not None]
        suspects: list[int] = []
        if individually:
            if not all([at_a_glance(self.bench, evaluation, inputs, sizes) for _ in range(self.directions)]):
                if not self.deterministic(evaluation.arguments):
                    return False
                suspects = [k for k in inputs if not all(agrees(self.bench, evaluation, [k], sizes) for _ in range(self.directions))]
        elif inputs and not agrees(self.bench, evaluation, inputs, sizes):
            suspects = inputs
        if individually and len(suspects) > 2 and self.misplaced(evaluation):
            return False
        for k in suspects:
            found = self.values_finding(evaluation, k, case, given)
            if found is not None:
                right = False
                self.findings.append(found)
                self.bad.add(k)
        if individually and self.findings:
            self.findings = located(self, evaluation)
        if right:
            self.cases.append((case, evaluation.arguments.shapes() if case else ""))
        return right

    def misplaced(self, evaluation: Evaluation) -> bool:
        """Whether every gradient is returned, and in another input's place: a None too many or too few before them."""
        arguments, places = evaluation.arguments, {}
        for k in arguments.checked:
            found, _ = true_gradient(self.bench, evaluation, k)
            if found is None or not bool((found.gradient != 0).any()):
                continue
            place = next((j for j, g in enumerate(evaluation.raw) if isinstance(g, torch.Tensor) and same(g, found.gradient)), None)
            if place is None:
                return False
            places[k] = place
        if len(set(places.values())) < len(places) or all(k == j for k, j in places.items()):
            return False
        count = next((p for p in evaluation.problems if p.kind == "count"), None)
        if count is not None:
            # All of them are there, and only the number is wrong: a None is missing, or one too many.
            self.findings.append(self.finding_of(count, evaluation, "", True))
            self.bad |= set(arguments.checked)
            self.broken = True
            return True
        method = mechanics.methods(self.bench)[1]
        lines = origins.executed_lines(self.bench, evaluation, self.subject.backward_code)
        node = source.return_statement(method, lines) if method is not None else None
        culprit = source.culprit_of(method, node, "the order of the gradients") if node is not None else None
        mend = in_other_places(self.bench, method, evaluation, node, places) if node is not None and self.mending else None
        names = tuple(arguments.names[k] for k in places)
        self.findings.append(Finding("misplaced", min(places), names=names, places=tuple(places.values()), culprit=culprit, mend=mend))
        self.bad |= set(arguments.checked)
        self.broken = True
        return True

    def deterministic(self, arguments: Arguments) -> bool:
        """Whether forward gives the same twice. What rises as its gradient says, to twelve digits of its values, does."""
        if self.same_outputs(self.bench.forward(arguments), self.bench.forward(arguments)):
            return True
        self.findings.append(self.not_deterministic())
        self.broken = True
        return False

    def not_deterministic(self) -> Finding:
        forward = mechanics.methods(self.bench)[0]
        node = source.outside_state(forward) if forward is not None else None
        culprit = source.culprit_of(forward, node, "changes what outlives the call", Role.MUTATE) if node is not None else None
        return Finding("not-deterministic", culprit=culprit)

    @staticmethod
    def same_outputs(one: Run, other: Run) -> bool:
        return all(
            not isinstance(a, torch.Tensor) or (a.shape == b.shape and mechanics.same_values(a, b))
            for a, b in zip(one.outputs, other.outputs, strict=True)
        )

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
                self.convention = True
                self.remark(f"{name}: backward agrees with autograd through forward, and differences of forward's values do not "
                            "(forward detaches a part, or reads only a part of its input)")  # fmt: skip
            elif result.why == "triangle":
                self.convention = True
                self.remark(f"{name}: forward reads one triangle of it only; its gradient is right for symmetric changes")
            elif result.why == "unknown":
                self.remark(f"{name}: no reliable derivative of forward could be found{f' ({case})' if case else ''}; its gradient is not judged")
            return None
        if result.truth is None:
            return None
        if self.bench.random and self.backward_draws(evaluation):
            return self.redrawn(evaluation, k, case, result)
        returned, true = evaluation.settled[k].to(torch.float64), result.truth.gradient
        typical, seen = self.typical(evaluation, k, result)
        if seen.zero and not surrogates.flat(self.bench, typical, k):
            # Flat at these values only, as ReLU is for negative ones: the law is to be found where it is not.
            typical, seen = next(self.where_it_rises(typical, k), (typical, seen))
        purpose = self.purpose(typical, k, seen.zero)
        kind = "not-derivative" if purpose else "values"
        relation = relation_of_values(self.bench, typical, k, seen.truth.gradient) if not seen.zero else None
        elsewhere = ""
        if relation is not None and typical is not evaluation:
            relation, exact = of_sizes(relation, evaluation, returned, true)
            elsewhere = "" if exact else typical.arguments.shapes()
        finding = self.completed(
            Finding(
                kind, k, case, evaluation.arguments.shapes(), relation=relation, sample=sample_of(returned, true, result.wrong),
                error=float((returned - true).norm()) / max(float(true.norm()), 1e-300),
                wrong=int(result.wrong.sum()), total=result.wrong.numel(), reference=result.truth.source,
                ok_cases=tuple(name for name, _ in self.cases), given=given, detail=purpose,
                elsewhere=elsewhere, partly=bool(((true != 0) & ~result.wrong).any()) and not bool((returned[true == 0] != 0).any()),
            ),
            typical, k, evaluation,
        )  # fmt: skip
        finding = self.of_random_inputs(finding)
        if kind == "values" and finding.mend is None and (finding.relation is None or finding.relation.kind in ("unknown", "passed-on")):
            if surrogates.rounded(self.bench, typical, k):
                # forward rounds it, and no law leads from what is returned to its derivative: that was not what was wanted.
                return dataclasses.replace(finding, kind="not-derivative", detail="rounds")
        return finding

    def of_random_inputs(self, finding: Finding) -> Finding:
        """Random inputs may not be what forward is for (sorted, normalised, each other's inverse): without a law, that is in doubt."""
        if self.made and finding.kind == "values" and finding.mend is None and (finding.relation is None or finding.relation.kind == "unknown"):
            return dataclasses.replace(finding, given=False)
        return finding

    def redrawn(self, evaluation: Evaluation, k: int, case: str, result: Verdict) -> Finding:
        """backward draws random numbers of its own: no law is to be found in what comes of them."""
        returned, true = evaluation.settled[k].to(torch.float64), result.truth.gradient
        line, file = origins.drawn_at(self.bench, evaluation), self.subject.backward_code.__code__.co_filename
        culprit = source.culprit_at(file, line, "draws anew", f"{self.subject.name}.{self.subject.backward_name}", Role.RETURN_GRAD) if line else None
        return Finding("values", k, case, evaluation.arguments.shapes(), relation=Relation("redrawn", line=line), culprit=culprit,
                       sample=sample_of(returned, true, result.wrong), wrong=int(result.wrong.sum()), total=result.wrong.numel(),
                       error=float((returned - true).norm()) / max(float(true.norm()), 1e-300), reference=result.truth.source)  # fmt: skip

    def backward_draws(self, evaluation: Evaluation) -> bool:
        run = self.bench.forward(evaluation.arguments)
        state = random_state()
        self.bench.evaluate(evaluation.arguments, evaluation.grads, run=run)
        return not unchanged(state)

    def typical(self, evaluation: Evaluation, k: int, result: Verdict) -> tuple[Evaluation, Verdict]:
        """A pass that shows the same mistake with several elements of different values, to find its law in."""
        evaluation, result = self.handy(evaluation, k, result)
        arguments = evaluation.arguments
        if not variants.few(arguments):
            return evaluation, result
        wide = variants.grown(arguments, self.generator)
        for other in (
            variants.redrawn(wide, self.generator) if wide else None, variants.moved(wide, self.generator) if wide else None,
            variants.redrawn(arguments, self.generator), variants.moved(arguments, self.generator),
        ):  # fmt: skip
            if other is None:
                continue
            try:
                run = self.bench.forward(other)
                if not finite(run):
                    continue
                again = self.bench.evaluate(other, run=None if self.bench.writes else run)
                if again.settled.get(k) is None:
                    continue
                seen = verdict(self.bench, again, k)
            except Exception:
                continue
            if not seen.right and seen.truth is not None:
                return again, seen
        return evaluation, result

    def where_it_rises(self, evaluation: Evaluation, k: int) -> typing.Iterator[tuple[Evaluation, Verdict]]:
        """Passes at other values that show a mistake where the true gradient is not zero."""
        for other in surrogates.elsewhere(self.bench, evaluation):
            if other.settled.get(k) is not None:
                seen = verdict(self.bench, other, k)
                if not seen.right and seen.truth is not None and not seen.zero:
                    yield other, seen

    def handy(self, evaluation: Evaluation, k: int, result: Verdict) -> tuple[Evaluation, Verdict]:
        """The same mistake on the small copy on the CPU, where it shows there too: many comparisons are made with it."""
        arguments = evaluation.arguments
        if variants.elements(arguments) <= 16 * variants.LARGE and arguments.values[k].device.type == "cpu":
            return evaluation, result
        other = self.bench.evaluate(self.study) if self.study is not arguments else evaluation
        if other is not evaluation and other.settled.get(k) is not None:
            again = verdict(self.bench, other, k)
            if not again.right and again.truth is not None:
                return other, again
        return evaluation, result

    def purpose(self, evaluation: Evaluation, k: int, zero: bool) -> str:
        """Why a gradient that is not the derivative seems to be meant so; empty where it does not."""
        if zero:
            return "zero" if surrogates.flat(self.bench, evaluation, k) else ""
        if surrogates.unchanged_input(self.bench, evaluation, k):
            return "unchanged"
        if surrogates.passed_through(self.bench, evaluation, k):
            return "rounds"
        return "steps" if surrogates.steps(self.bench, evaluation, k) else ""

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

    def completed(self, finding: Finding, evaluation: Evaluation, k: int, seen: Evaluation | None = None) -> Finding:
        """The finding with the expression responsible and, where one was found, a change that mends it.

        `seen` is the pass it was found in, where `evaluation` is another that shows it better.
        """
        method = mechanics.methods(self.bench)[1]
        if method is None:
            return finding
        mend: Mend | None = None
        lines = origins.executed_lines(self.bench, evaluation, self.subject.backward_code)
        if self.mending and finding.kind not in ("not-derivative", "none"):
            kind = finding.relation.kind if finding.relation is not None else finding.kind
            mend = mended(self.bench, method, evaluation, k, self.study, "shape" if finding.kind == "shape" else kind, self.mends, self.in_vain, seen)
            self.in_vain |= mend is None
            if mend is not None and mend not in self.mends:
                self.mends.append(mend)
        condition = finding.relation.tensor if finding.relation is not None and finding.relation.kind == "condition" else ""
        partly = condition.startswith("the index along")
        if (partly or " == " in condition or " != " in condition) and mend is not None:
            finding = dataclasses.replace(finding, relation=UNKNOWN)  # the change says more than where it shows
        elif partly and (piece := piece_of(self.bench, method, evaluation, k, lines)) is not None:
            culprit = source.culprit_of(method, piece, f"this part of the gradient for {self.arguments.names[k]}")
            return dataclasses.replace(finding, culprit=culprit)
        if mend is None and finding.kind == "values" and finding.relation is not None and finding.relation.kind == "unknown":
            found = scaled_part(self.bench, method, evaluation, k, lines)
            if found is not None:
                culprit = source.culprit_of(method, found[1], f"a term of the gradient for {self.arguments.names[k]}")
                return dataclasses.replace(finding, culprit=culprit, relation=found[0])
            piece = piece_of(self.bench, method, evaluation, k, lines, whole=False)
            if piece is not None:
                label = "the one part of the gradient that reaches all wrong elements"
                return dataclasses.replace(finding, culprit=source.culprit_of(method, piece, label))
        if k < 0:
            node = source.return_statement(method, lines)
            label = f"returns {finding.returned_count} gradients for {finding.expected_count} inputs"
        else:
            node = source.returned_expression(method, k, len(self.arguments.values), lines)
            label = f"the gradient for {self.arguments.names[k]}"
            if mend is None and node is not None and finding.relation is not None and finding.relation.kind == "missing-term":
                node = slices.summed(method, node, lines)
            elif mend is None and node is not None and finding.relation is not None and finding.relation.kind == "unknown":
                node = slices.times_grad(method, node, lines)
        culprit = source.culprit_of(method, node, label) if node is not None else None
        if mend is not None:
            culprit = dataclasses.replace(mend.culprit, label=label) if culprit is None or not _inside(mend.culprit, culprit) else culprit
        return dataclasses.replace(finding, culprit=culprit, mend=mend)

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)


def sample_of(returned: torch.Tensor, true: torch.Tensor, wrong: torch.Tensor) -> Sample | None:
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
