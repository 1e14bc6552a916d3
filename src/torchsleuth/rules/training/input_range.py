"""Ids and labels that point outside of what they index."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import InputFact, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class InputRange(AuditRule):
    """A token id, position, token type or class label lies outside the table or the number of classes.

    What happened
    -------------
    The largest id of the batch was compared with the number of rows of the embedding table it is looked
    up in, and the labels with the number of scores the model gives.

    Why
    ---
    Valid ids are 0 to rows - 1. An id from another tokenizer, a position beyond the longest the model
    knows, a token type above the number of types, or labels that count from 1, fall outside. On a CPU
    that is an `IndexError`; on a GPU an assert that is reported at some later, unrelated line.

    Example
    -------
    Row 5 of a table of 5 rows. This raises IndexError, index out of range in self:

        import torch

        torch.nn.Embedding(5, 2)(torch.tensor([5]))

    Fix
    ---
    Use the tokenizer that belongs to the model; resize the table after adding tokens; cut sequences at
    the longest position; count classes from 0.

    Common false explanations
    -------------------------
    "Padding causes it": only if the pad id itself is outside of the table.
    """

    name = "input-out-of-range"
    order = 1

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.inputs:
            if fact.kind == "index-out-of-table":
                yield _lookup(fact, observation)
            elif fact.kind == "label-out-of-range":
                yield _label(fact, observation)
            elif fact.kind == "binary-target":
                yield _binary(fact, observation)


def _culprits(fact: InputFact, observation: Observation, label: str):
    site = fact.site or observation.call
    name = f"`{fact.name}` is" if fact.name else "they are" if fact.kind.startswith("label") else "the targets are" if fact.kind == "binary-target" else "it is"
    made = (culprit(fact.made, Role.CREATE, f"{name} made here"),) if fact.made is not None and (site is None or fact.made.span != site.span) else ()
    return ((culprit(site, Role.INDEX, label),) if site is not None else ()) + made


def _lookup(fact: InputFact, observation: Observation) -> Diagnosis:
    name = f"`{fact.name}`" if fact.name else "the index"
    low = "below 0" if (fact.value or 0) < 0 else f"but the table has {fact.limit} rows (valid: 0 to {(fact.limit or 1) - 1})"
    what = f"{name} holds {fact.value} at {list(fact.position)}, {low}"
    return Diagnosis(
        InputRange.name, f"{what}: it points outside of the table", Confidence.CERTAIN, _culprits(fact, observation, f"index {fact.value}, table of {fact.limit} rows"),
        observed(what, "1 entry is out of range" if fact.count == 1 else f"{fact.count} entries are out of range", fact.text, f"the table is `{fact.table}`" if fact.table else ""),
        "An embedding is a table with one row for each id from 0; there is no row for this one.",
        (advice("Make ids and table fit: the model's own tokenizer, a larger table, or shorter sequences for a table of positions."),),
    )  # fmt: skip


def _label(fact: InputFact, observation: Observation) -> Diagnosis:
    what = f"label {fact.value} at {list(fact.position)} with {fact.limit} classes (valid: 0 to {(fact.limit or 1) - 1})"
    fix = f"Count classes from 0: the labels run from 1 to {fact.limit}." if fact.lowest == 1 and fact.value == fact.limit else \
        "Give the model as many outputs as there are classes, or mark labels that do not count with `ignore_index`."  # fmt: skip
    return Diagnosis(
        InputRange.name, f"the loss is given {what}", Confidence.CERTAIN, _culprits(fact, observation, f"label {fact.value}, {fact.limit} classes"),
        observed(f"`{fact.table}` gets {what}", "1 label is out of range" if fact.count == 1 else f"{fact.count} labels are out of range", fact.text),
        "A class label picks one of the model's scores; there is no score for this one.", (advice(fix),),
    )  # fmt: skip


def _binary(fact: InputFact, observation: Observation) -> Diagnosis:
    return Diagnosis(
        InputRange.name, f"`{fact.table}` is given a target of {fact.value:g}; targets lie between 0 and 1", Confidence.CERTAIN,
        _culprits(fact, observation, f"target {fact.value:g}"), observed(f"a target of `{fact.table}` is {fact.value:g}"),
        "The targets of this loss are probabilities.", (advice("Use 0 and 1 (or probabilities) as targets."),),
    )  # fmt: skip
