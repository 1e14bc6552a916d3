"""One tensor, rewritten in place, collected as if it were many."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class AliasedResults(AuditRule):
    """A list of results holds the same tensor again and again: all entries show its last content.

    What happened
    -------------
    `stack` or `cat` was given a list whose entries are one and the same tensor, which was written in
    place several times while the list was filled.

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
