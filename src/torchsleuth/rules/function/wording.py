"""Sentences that several rules about Functions share: names, numbers, samples, cases and mended source."""

from __future__ import annotations

from torchsleuth.checker.trial import Finding, Relation, Size, Trial
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Status, Verdict

# Experiments in which only the size or the memory layout is unusual.
SPECIAL = ("a batch of 1", "size 0", "unequal dimensions", "non-contiguous inputs", "expanded inputs",
           "non-contiguous grad_output", "expanded grad_output (as .sum() makes it)")  # fmt: skip


def values_with(trial: Trial, *kinds: str) -> tuple[Finding, ...]:
    """Wrong values with one of these relations, outside the special cases."""
    return tuple(
        f for f in trial.of_kind("values") if f.relation is not None and f.relation.kind in kinds and f.case not in SPECIAL
    )


def name_of(trial: Trial, finding: Finding) -> str:
    return trial.inputs[finding.input].name if 0 <= finding.input < len(trial.inputs) else ""


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}"


def listed(names: tuple[str, ...]) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" and {quoted[-1]}"


def whose(trial: Trial, finding: Finding) -> str:
    """`the gradient for `x``, or that of several inputs which one slip spoils."""
    return f"the gradients for {listed(finding.names)}" if len(finding.names) > 1 else f"the gradient for `{name_of(trial, finding)}`"


def shape(sizes: tuple[int, ...]) -> str:
    return str(list(sizes))


def ordinal(position: int) -> str:
    return {0: "first", 1: "second", 2: "third", 3: "fourth", 4: "fifth"}.get(position, f"{position + 1}th")


def where(finding: Finding) -> str:
    """' with alpha=0.75', where the user's own inputs do not show it."""
    if not finding.case:
        return f" (in a copy: {finding.elsewhere})" if finding.elsewhere else ""
    if "=" in finding.case or finding.case.startswith(("only ", "each ")):
        return f" with {finding.case}" if "=" in finding.case else f", {finding.case}"
    return f" for {finding.case}"


def confidence(finding: Finding) -> Confidence:
    return Confidence.CERTAIN if finding.given else Confidence.LIKELY


def measured(trial: Trial, finding: Finding) -> tuple[Fact, ...]:
    """What was compared, where it differs most, and how the truth is known."""
    out: list[Fact] = []
    name = name_of(trial, finding)
    if finding.sample is not None:
        at = f"at {name}{shape(finding.sample.index)} " if finding.sample.index else ""
        out.append(Fact(f"{at}backward returned {finding.sample.returned:.6g}; the true gradient is {finding.sample.true:.6g}", Known.RECOMPUTED))
    if finding.total:
        share = "every element differs" if finding.wrong == finding.total else f"{finding.wrong} of {finding.total} elements differ"
        out.append(Fact(f"{share} ({finding.case_text})", Known.RECOMPUTED))
    if finding.reference == "autograd":
        out.append(Fact("the true gradient: autograd through forward, confirmed by differences of forward's values", Known.RECOMPUTED))
    elif finding.reference:
        out.append(Fact("the true gradient: differences of forward's values", Known.RECOMPUTED))
    if finding.case and (right := right_elsewhere(finding)):
        out.append(Fact(right, Known.RECOMPUTED))
    return tuple(out)


def right_elsewhere(finding: Finding) -> str:
    cases = ["the inputs as given" if not case else case for case in finding.ok_cases]
    return "right for " + ", ".join(cases[:3]) if cases else ""


def size_text(size: Size) -> str:
    """`dimension 1 of x has 32 elements`."""
    if size.kind == "dimension":
        dims = " and ".join(str(d) for d in size.dims)
        plural = "dimensions" if len(size.dims) > 1 else "dimension"
        owner = size.name
        together = " together" if len(size.dims) > 1 else ""
        return f"{plural} {dims} of {owner} {'have' if together else 'has'} {number(size.value)} elements{together}"
    if size.kind == "elements":
        return f"{size.name} has {number(size.value)} elements"
    if size.kind == "argument":
        return f"{size.name} is {number(size.value)}"
    if size.kind in ("one-minus", "one-plus"):
        return f"{of_argument(size)} is {number(size.value)}"
    return ""


def of_argument(size: Size) -> str:
    return {"one-minus": f"1 - {size.name}", "one-plus": f"1 + {size.name}"}.get(size.kind, size.name)


def power_text(size: Size) -> str:
    base = number(size.value)
    return {1.0: base, -1.0: f"1/{base}", 0.5: f"the square root of {base}", -0.5: f"1 / the square root of {base}",
            2.0: f"{base} squared", -2.0: f"1 / {base} squared"}.get(size.power, base)  # fmt: skip


def culprits(*found: Culprit | None) -> tuple[Culprit, ...]:
    out: list[Culprit] = []
    for culprit in found:
        if culprit is not None and all(culprit.span != other.span for other in out):
            out.append(culprit)
    return tuple(out)


def fixes(finding: Finding, advice: str = "") -> tuple[Fix, ...]:
    """The change that mended it, if one was found; otherwise advice."""
    if finding.mend is not None:
        mend = finding.mend
        place = f"in line {mend.edit.span.line}, " if len(mend.before) < 4 else ""
        text = (f"with this change backward agreed with forward in {mend.experiments} experiments in memory "
                "(other inputs, other grad_outputs, other sizes); the program itself was not run")  # fmt: skip
        return (
            Fix(f"{place}write `{mend.after}` instead of `{mend.before}`", Applicability.UNSAFE, (mend.edit,), mend.diff,
                Verdict(Status.PASSED, text), meaning="changes the gradient this Function returns"),
        )  # fmt: skip
    return (Fix(advice, Applicability.DISPLAY_ONLY),) if advice else ()


def diagnosis(
    rule: str, title: str, trial: Trial, finding: Finding, explanation: str, advice: str = "", facts: tuple[Fact, ...] | None = None,
    sure: Confidence | None = None,
) -> Diagnosis:
    return Diagnosis(
        rule, title, confidence(finding) if sure is None else sure, culprits(finding.culprit),
        measured(trial, finding) if facts is None else facts, explanation, fixes(finding, advice),
    )  # fmt: skip


def relation_text(trial: Trial, relation: Relation | None) -> str:
    """A relation in a few words, for rules about something else (a shape, a size)."""
    if relation is None:
        return ""
    if relation.kind == "transposed":
        return f"it is the true gradient with dimensions {relation.dims[0]} and {relation.dims[1]} exchanged"
    if relation.kind == "other-input":
        return f"it is the gradient for {trial.inputs[relation.other].name}"
    if relation.kind == "grad-output-itself":
        return "it is grad_output, passed on as it came"
    if relation.kind == "collapsed":
        dims = " and ".join(map(str, relation.dims))
        return f"it is the true gradient after a {relation.detail} over dimension {dims}"
    if relation.kind == "reshaped":
        return "it has the right values in the right order"
    if relation.kind == "reduction" and relation.detail == "none":
        return "it is the gradient before the sum over the dimensions that the input was broadcast over"
    if relation.kind == "reduction" and relation.detail.startswith("other:"):
        return f"it was summed over dimension {relation.detail[6:]} where the input was broadcast over {_dims(relation.dims)}"
    if relation.kind == "factor":
        return f"it is {number(relation.factor)} times the true gradient"
    if relation.kind == "zero":
        return "it is all zeros"
    return ""


def _dims(dims: tuple[int, ...]) -> str:
    return ("dimensions " if len(dims) > 1 else "dimension ") + " and ".join(map(str, dims))
