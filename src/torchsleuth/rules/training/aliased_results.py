"""One tensor, rewritten in place, collected as if it were many."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Alias, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class AliasedResults(AuditRule):
    """A list of results holds the same tensor again and again: all entries show its last content.

    What happened
    -------------
    `stack` or `cat` was given a list whose entries are one and the same tensor, which was written in
    place several times while the list was filled. Or a model returns one tensor in two places (`return mean, mean`).

    Why
    ---
    Appending a tensor to a list does not copy it. An in-place update (`h += …`, `h.mul_(…)`) changes what
    all entries show.

    Example
    -------
    Three steps, one tensor. This prints [3.0, 3.0, 3.0] where 1, 2, 3 was meant:

        import torch

        h, steps = torch.zeros(1), []
        for _ in range(3):
            h += 1
            steps.append(h)
        print(torch.cat(steps).tolist())

    Fix
    ---
    `h = h + 1` makes a new tensor for each step; or append `h.clone()`.

    Common false explanations
    -------------------------
    "The loop stores a snapshot": it stores a reference.
    """

    name = "aliased-results"
    order = 16

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for alias in observation.aliases:
            if alias.returned:
                yield _returned(alias, observation)
                continue
            culprits = []
            if alias.writes is not None:
                culprits.append(culprit(alias.writes, Role.MUTATE, "rewrites the tensor that is already in the list"))
            if alias.writes is None or alias.site.span != alias.writes.span:
                culprits.append(culprit(alias.site, Role.CALL, f"{alias.count} entries, one tensor"))
            yield Diagnosis(
                self.name, f"the same tensor is collected {alias.count} times", Confidence.CERTAIN, tuple(culprits),
                observed(f"all {alias.count} entries of the list lie at the same address, and `{alias.writer}` wrote to it in between"),
                "A list holds references. An in-place write changes every entry.",
                (advice("Make a new tensor in each round (`h = h + x` instead of `h += x`), or append `h.clone()`."),),
            )  # fmt: skip


def _returned(alias: Alias, observation: Observation) -> Diagnosis:
    dropped = [unused for unused in observation.unused if unused.how == "dropped" and unused.site is not None]
    culprits = [culprit(alias.site, Role.CALL, f"{' and '.join(f'`{name}`' for name in alias.returned)} are one and the same tensor")]
    culprits += [culprit(unused.site, Role.LOST_GRAD, "this is returned in neither place") for unused in dropped if unused.site is not None]
    facts = [f"{' and '.join(f'`{name}`' for name in alias.returned)}, shape {list(alias.size)}, are one object"]
    facts += [f"{listed(unused.weights)} got no gradient in this step: the result of `{unused.module}` is dropped" for unused in dropped]
    return Diagnosis(
        AliasedResults.name, "the model returns the same tensor twice", Confidence.LIKELY if dropped else Confidence.POSSIBLE, tuple(culprits), observed(*facts),
        "Whoever takes the second for something else computes with the first." + (" What was to be returned is not, and the layer that makes it is not trained." if dropped else ""),
        (advice("Return each result once: one of the two places wants another name."),),
    )  # fmt: skip
