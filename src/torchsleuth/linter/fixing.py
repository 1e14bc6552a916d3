"""Fixes one source until nothing more can be fixed: proves loop rewrites, applies what may be applied.

A fix is applied where it is safe by construction, or where its proof passed; `unsafe` also takes the rest.
Never twice the same: after each round the text is linted again, and a text that no longer parses is refused.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from torchsleuth.linter.edits import edited_bytes, without_overlaps
from torchsleuth.linter.engine import Outcome, linted
from torchsleuth.linter.prove import Proof, proved
from torchsleuth.linter.source import Unreadable, source_from
from torchsleuth.model import Applicability, Diagnosis, Fact, Fix, Known, Status, Verdict

ROUNDS = 8


@dataclass(slots=True)
class Fixed:
    data: bytes
    applied: list[tuple[Diagnosis, Fix]] = field(default_factory=list)
    left: list[Diagnosis] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)


def proven_outcome(data: bytes, label: str, wanted) -> Outcome:
    """Lint one file and run the proofs of its loop rewrites; `wanted` says which findings count."""
    outcome = linted(source_from(data, label))
    outcome.diagnoses = [d for d in outcome.diagnoses if wanted(d)]
    keys = [(d.rule, d.culprits[0].span) for d in outcome.diagnoses]
    jobs = [outcome.jobs[key] for key in keys if key in outcome.jobs]
    proofs = iter(proved(jobs))
    outcome.diagnoses = [
        _with_proof(d, next(proofs)) if key in outcome.jobs else d for d, key in zip(outcome.diagnoses, keys, strict=True)
    ]
    return outcome


def fixed(data: bytes, label: str, wanted, unsafe: bool) -> Fixed:
    result = Fixed(data)
    for _ in range(ROUNDS):
        outcome = proven_outcome(result.data, label, wanted)
        result.left, result.remarks = outcome.diagnoses, outcome.remarks
        chosen = [(d, fix) for d in outcome.diagnoses if (fix := applicable_fix(d, unsafe)) is not None]
        groups = without_overlaps(fix.edits for _, fix in chosen)
        chosen = [(d, fix) for d, fix in chosen if fix.edits in groups]
        if not chosen:
            break
        after = edited_bytes(result.data, label, [edit for _, fix in chosen for edit in fix.edits])
        try:
            source_from(after, label)
        except Unreadable:
            # One of the edits broke the syntax: that would be our defect, and must not reach the file.
            break
        if after == result.data:
            break
        result.data = after
        result.applied += chosen
    return result


def applicable_fix(diagnosis: Diagnosis, unsafe: bool) -> Fix | None:
    for fix in diagnosis.fixes:
        if not fix.edits or fix.applicability is Applicability.DISPLAY_ONLY:
            continue
        if fix.verdict.status in (Status.NEW_FAILURE, Status.SAME_FAILURE):
            continue
        if unsafe or fix.applicability is Applicability.SAFE:
            return fix
    return None


def _with_proof(diagnosis: Diagnosis, proof: Proof) -> Diagnosis:
    """The diagnosis with what running both versions showed: a proven rewrite becomes safe, a refuted one advice."""
    fix = diagnosis.fixes[0]
    if proof.status is Status.PASSED:
        fix = dataclasses.replace(fix, applicability=Applicability.SAFE, verdict=Verdict(proof.status, proof.text))
    elif proof.status is Status.NOT_RUN:
        fix = dataclasses.replace(fix, applicability=Applicability.UNSAFE, verdict=Verdict(proof.status, proof.text))
    else:
        fix = dataclasses.replace(fix, applicability=Applicability.DISPLAY_ONLY, verdict=Verdict(proof.status, proof.text))
    facts = diagnosis.facts + tuple(Fact(text, Known.RECOMPUTED) for text in proof.facts)
    return dataclasses.replace(diagnosis, fixes=(fix, *diagnosis.fixes[1:]), facts=facts)
