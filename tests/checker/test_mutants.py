"""The mutation harness: every wrong mutant is found, no right one is accused, the relation is named for most.

Four tests, so that workers share them; each prints its table (`pytest -s`, `python -m bench.check --mutants`).
"""

import collections
import warnings

import mutants
import pytest
import right_functions as right

from torchsleuth.checker import check_trial
from torchsleuth.checker.report import report_of

NAMES = [name for name in right.INPUTS if name not in right.DELIBERATE]
PARTS = [NAMES[k::4] for k in range(4)]

# Right after all, and why. A mutant found equivalent by the oracle must be on this list.
EQUIVALENT = {
    "the engine sums a gradient whose shape the input expands to": {"drop the reduction"},
    "log-probabilities have the same softmax as logits": {("CrossEntropy", "save the wrong tensor")},
    "`lead` is empty or short, and the engine sums over what is left": {("LayerNorm", "drop a term"), ("LayerNorm", "constant")},
    "the gradient of an integer output is not used": {("MaxOver", "forget grad_output")},
}


def reason(mutant):
    return next((why for why, which in EQUIVALENT.items() if mutant.operator in which or (mutant.function, mutant.operator) in which), None)


@pytest.mark.parametrize("part", range(4))
def test_mutants(part):
    table = collections.defaultdict(collections.Counter)
    missed, accused, unnamed, unfixed, unexplained = [], [], [], [], []
    for name in PARTS[part]:
        for position, mutant in enumerate(mutants.mutants_of(name)):
            function = mutants.built(mutant.text, name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not mutants.forward_works(function, name):
                    continue  # the slip is in what forward saves, and forward itself fails
                wrong = mutants.wrong_inputs(function, name)
                # Looking for a fix takes longest: it is done for every third, and where the relation is not enough.
                trial = check_trial(function, *right.INPUTS[name](), mend=position % 3 == 0)
                if position % 3 and not _related(trial, mutant):
                    trial = check_trial(function, *right.INPUTS[name]())
            report = report_of((trial,))
            row = table[mutant.operator]
            label = f"{name}: {mutant.operator}: {mutant.where}"
            if wrong == set() and mutant.operator != "modify in place":
                row["equivalent"] += 1
                if reason(mutant) is None:
                    unexplained.append(label)
                # An intermediate result that is saved spoils double backward, and only that.
                if {f.kind for f in trial.findings} - {"double-backward"}:
                    accused.append(label)
                continue
            row["wrong"] += 1
            row["found"] += not report.ok
            if report.ok:
                missed.append(label)
                continue
            values = {f.input for f in trial.findings if f.kind in ("values", "shape", "none") and not f.case}
            if wrong is not None and not values <= wrong:
                accused.append(f"{label}: accuses inputs {values}, wrong are {wrong}")
            related = _related(trial, mutant)
            mend = next((f.mend for f in trial.findings if f.mend), None)
            fixed = mend is not None and _fixes(trial, mutant, name)
            row["related"] += related
            row["mended"] += fixed
            row["named"] += related or fixed
            if not related and not fixed:
                unnamed.append(label)
            if mend is not None and not fixed:
                unfixed.append(f"{label}: {mend.before} -> {mend.after}")
    _print(table, unnamed)
    assert not missed, missed
    assert not accused, accused
    assert not unexplained, unexplained
    assert not unfixed, unfixed
    total = sum(row["wrong"] for row in table.values())
    assert total > 80
    assert sum(row["named"] for row in table.values()) >= 0.85 * total


def _related(trial, mutant):
    kinds = {f.kind for f in trial.findings} | {f.relation.kind for f in trial.findings if f.relation}
    return bool(kinds & (mutants.EXPECTED[mutant.operator] | mutants.CRASHES))


def _fixes(trial, mutant, name):
    """Whether the offered change, applied to the mutant's text, is right by the oracle: for the inputs it is offered for."""
    lines = mutant.text.split("\n")
    done = []
    for finding in trial.findings:
        if finding.mend is None:
            continue
        span = finding.mend.edit.span
        assert span.line == span.end_line
        text = list(lines)
        line = text[span.line - 1]
        text[span.line - 1] = line[: span.column - 1] + finding.mend.after + line[span.end_column - 1 :]
        wrong = mutants.wrong_inputs(mutants.built("\n".join(text), name), name)
        done.append(wrong is not None and finding.input not in wrong)
    return bool(done) and all(done)


def _print(table, unnamed):
    print(f"\n{'operator':24}{'wrong':>7}{'found':>7}{'relation':>10}{'mended':>8}{'named':>7}{'equivalent':>12}")
    rows = [*sorted(table.items()), ("all", sum(table.values(), collections.Counter()))]
    for operator, row in rows:
        print(f"{operator:24}{row['wrong']:7}{row['found']:7}{row['related']:10}{row['mended']:8}{row['named']:7}{row['equivalent']:12}")
    for label in unnamed:
        print("  found, relation not named:", label)
