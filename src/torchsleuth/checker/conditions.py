"""The unusual conditions, one by one: sizes, signs, constants, layouts, types, inputs and outputs used alone."""

from __future__ import annotations

import contextlib
import dataclasses

import torch

from torchsleuth.checker import layouts, mechanics, origins, plainvalues, second, slices, source, transforms, variants
from torchsleuth.checker.arguments import Arguments, dtype_name, in_dtypes
from torchsleuth.checker.bench import Evaluation, finite, is_float, length
from torchsleuth.checker.judgement import Judge, sample_of
from torchsleuth.checker.randomness import random_state, unchanged
from torchsleuth.checker.trial import Finding
from torchsleuth.checker.truth import differing, through_forward, verdict
from torchsleuth.model import Role


class Conditions(Judge):
    """Experiments beyond the inputs as given. `forward` may refuse any of them; that is noted and nothing more."""

    base: Evaluation  # a pass on the study

    def other_inputs(self) -> None:
        study, generator = self.study, self.generator
        self.unequal()
        for size, name in ((1, "a batch of 1"), (3, "a batch of 3"), (0, "size 0")):
            if size == 3 and not (self.batched and study.values[self.batched[0]].shape[0] == 1):
                continue
            self.attempt(name, variants.with_batch(study, size, generator, self.batched))
        self.attempt("other signs", variants.other_signs(study, generator), given=False)
        self.attempt("values five times as large", variants.wider(study), given=False)
        self.attempt("other masks", variants.other_masks(study, generator), given=False)
        for name, other in plainvalues.other_constants(study):
            self.attempt(name, other, given=False)

    def other_flags(self) -> None:
        """A branch that a flag decides is tried as well, unless it makes forward draw random numbers, or write, where it did not."""
        for name, other in plainvalues.other_flags(self.study):
            copies = other.with_values(v.clone() if isinstance(v, torch.Tensor) else v for v in other.values)
            watch, before = mechanics.Watch(copies.values), random_state()
            try:
                self.bench.forward(copies)
            except Exception as error:
                self.refused.append((name, second.described(error)))
                continue
            drew = not unchanged(before)
            if (self.bench.writes or not watch.written()) and (self.bench.random or not drew):
                self.attempt(name, other, given=False)

    def unequal(self) -> None:
        outputs = self.bench.forward(self.study).outputs if self.square else ()
        for other in variants.reshapings(self.study, self.generator, outputs):
            if self.attempt("unequal dimensions", other, quiet=True, given=False):
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
            self.attempt("non-contiguous inputs", layouts.with_noncontiguous(study))
            self.attempt("expanded inputs", layouts.with_expanded(study))
            return
        reference = bench.evaluate(study, base.grads) if bench.writes else base
        self.same_as(reference, "non-contiguous inputs", layouts.with_noncontiguous(study), reference.grads)
        expanded = layouts.with_expanded(study)
        if expanded is not None:
            dense = expanded.with_values(v.contiguous() if isinstance(v, torch.Tensor) else v for v in expanded.values)
            try:
                dense_pass = bench.evaluate(dense, reference.grads)
            except Exception:
                dense_pass = None
            if dense_pass is not None:
                self.same_as(dense_pass, "expanded inputs", expanded, reference.grads)
        grads = tuple(None if g is None else layouts.noncontiguous(g) for g in reference.grads)
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
                if not any(f.kind == "forward-differs" for f in self.findings):
                    forward = mechanics.methods(self.bench)[0]
                    node = source.reads_memory(forward) if forward is not None else None
                    culprit = source.culprit_of(forward, node, "reads memory in its own order", Role.OPERAND) if node is not None else None
                    self.findings.append(Finding("forward-differs", case=name, case_text=arguments.shapes(), culprit=culprit))
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
                        Finding("layout", k, name, arguments.shapes(), sample=sample_of(got, want, wrong), wrong=int(wrong.sum()),
                                total=wrong.numel(), error=float((got - want).norm()) / max(float(want.norm()), 1e-300),
                                ok_cases=("contiguous",)),
                        other, k,
                    )
                )  # fmt: skip
                return
        self.cases.append((name, arguments.shapes()))

    def types(self, exact: Evaluation) -> None:
        """The types the user has, where they are not float64, against a pass in float64."""
        dtypes = self.given_types()
        if any(is_float(v) and v.dtype is not torch.float64 for v in exact.arguments.values):
            return
        name = " and ".join(sorted({dtype_name(d) for d in dtypes if d is not None and d.is_floating_point}))
        arguments = in_dtypes(exact.arguments, dtypes)
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
        # Another type draws other random numbers: then autograd through forward, where that is the truth, is what to compare with.
        drawn = (through_forward(self.bench, exact), through_forward(self.bench, other)) if self.bench.random else None
        for k in arguments.checked:
            want, got = exact.settled.get(k), other.settled.get(k)
            if drawn is not None and want is not None:
                want = drawn[1].get(k) if k in drawn[0] and not bool(differing(drawn[0][k], want).any()) else None
            if want is None or got is None or k in self.bad:
                continue
            error = length(got - want) / max(length(want), 1e-30)
            if error > bound:
                fair = through_forward(self.bench, other).get(k)
                fair_error = float((fair.double() - want).norm()) / max(float(want.norm()), 1e-30) if fair is not None else 1.0
                if fair_error < bound / 5:
                    self.bad.add(k)
                    self.findings.append(self.completed(Finding("precision", k, name, error=error, detail=f"{fair_error:.1g}"), other, k))
                    return
                self.remark(f"in {name} the gradient for {self.arguments.names[k]} is off by {error:.1g}, and so is autograd's: it is a matter of rounding")
                return
        self.cases.append((name, arguments.shapes()))

    def partial_needs(self, given: Evaluation) -> None:
        """Each input requiring grad alone: `needs_input_grad` read at the right index."""
        if len(given.arguments.values) < 2 or not given.run.context._asked:
            return
        study, base = self.study, self.base
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

    def partial_outputs(self, given: Evaluation) -> None:
        """Each output used alone: the gradients of the others are zeros, or None if they are not materialised."""
        live = [o for o, g in enumerate(given.grads) if g is not None]
        if len(live) < 2:
            return
        base = self.base
        total: dict[int, torch.Tensor] = {}
        passes: dict[int, Evaluation] = {}
        for o in live:
            grads = tuple(g if j == o else None for j, g in enumerate(base.grads))
            alone = self.bench.evaluate(self.study, grads)
            if alone.problems and alone.problems[0].kind == "raises":
                self.findings.append(self.finding_of(alone.problems[0], alone, f"only output {o} used", True))
                return
            passes[o] = alone
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
                # With all outputs in use the gradient is right: what is wrong shows where one of them is used alone.
                o = next((o for o, alone in passes.items() if not verdict(self.bench, alone, k).right), None)
                if o is not None:
                    nothing = "" if passes[o].settled.get(k) is not None else "None"
                    found = self.completed(Finding("not-linear", k, f"only output {o} used", detail=nothing), passes[o], k)
                    self.findings.append(self.decided(found, o, passes[o]) if found.mend is None else found)
        self.cases.append(("each output used alone", ""))

    def decided(self, finding: Finding, o: int, alone: Evaluation) -> Finding:
        """The finding at the condition that leaves out what comes back through output `o`, where there is one."""
        method = mechanics.methods(self.bench)[1]
        if method is None:
            return finding
        one, all_of_them = (origins.executed_lines(self.bench, e, self.subject.backward_code) for e in (alone, self.base))
        test = slices.deciding(method, o, one, all_of_them)
        label = f"decides about the gradient for {self.arguments.names[finding.input]}"
        return dataclasses.replace(finding, culprit=source.culprit_of(method, test, label)) if test is not None else finding

    def autocast(self, evaluation: Evaluation | Exception | None = None) -> None:
        if evaluation is None:
            evaluation = transforms.under_autocast(self.bench, transforms.in_float32(self.study), None)
        if isinstance(evaluation, Exception):
            self.refused.append(("autocast", second.described(evaluation)))
            return
        if transforms.for_another_device(self.bench, self.study):
            return
        found, remark = transforms.autocast(self.bench, evaluation)
        self.findings += found
        if remark:
            self.remarks.append(
                f"under autocast (bfloat16) backward raises {remark}; decorate forward and backward with "
                "torch.amp.custom_fwd and torch.amp.custom_bwd to use the Function there"
            )
        elif not found:
            self.cases.append(("autocast", "bfloat16"))

    def types_and_autocast(self, exact: Evaluation, given: Evaluation) -> bool:
        """One float32 pass under autocast; where autocast changes no type, it is the plain float32 pass as well.

        Where it does, there is a plain float32 pass beside it: on the inputs `given`, where those of `exact` are too
        large for float32 to have digits left. False where the inputs have other types.
        """
        if self.bench.random or self.bench.writes:
            return False
        for dtype, value in zip(self.given_types(), exact.arguments.values, strict=True):
            if dtype is not None and dtype.is_floating_point and (dtype is not torch.float32 or value.dtype is not torch.float64):
                return False
        short = transforms.in_float32(exact.arguments)
        cast = other = transforms.under_autocast(self.bench, short, exact.grads)
        if isinstance(cast, Exception) or cast.problems or any(is_float(o) and o.dtype is not torch.float32 for o in cast.run.outputs):
            other = None
            if not self.drowns(exact):
                with contextlib.suppress(Exception):
                    run = self.bench.forward(short)
                    other = self.bench.evaluate(short, transforms.grads_for(run, exact.grads), run=run, spent=True)
        if other is not None and self.close(exact, other):
            self.cases.append(("float32", ""))
        else:
            small = variants.elements(given.arguments) <= variants.LARGE and given.arguments.values[given.arguments.checked[0]].is_cpu
            self.types(given if small else self.base)
        if not self.findings and not self.bad:
            self.autocast(cast)
        return True

    def drowns(self, exact: Evaluation) -> bool:
        """Whether a gradient is so small beside the outputs that the rounding of float32 is as large."""
        outputs = sum(length(g) * length(o) for g, o in zip(exact.grads, exact.run.outputs, strict=True) if g is not None)
        return any(g is not None and self.sizes[k] * length(g) < 1e-5 * outputs for k, g in exact.settled.items())

    @staticmethod
    def close(exact: Evaluation, other: Evaluation) -> bool:
        """Whether a pass in float32 is free of problems and gives the same to within its digits."""
        if other.problems or any(is_float(o) and o.dtype is not torch.float32 for o in other.run.outputs):
            return False
        for k in exact.arguments.checked:
            want, got = exact.settled.get(k), other.settled.get(k)
            if want is None or got is None or not length(got - want) <= 0.02 * length(want) + 1e-30:
                return False
        return True

    def given_types(self) -> list:
        """The types the user has; float32 where those are float64."""
        given = [d for k, d in enumerate(self.arguments.dtypes) if k in self.arguments.checked and d is not None]
        if all(d is torch.float64 for d in given):
            return [torch.float32 if d is not None and d.is_floating_point else d for d in self.arguments.dtypes]
        return list(self.arguments.dtypes)
