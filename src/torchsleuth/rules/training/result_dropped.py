"""A result that is computed and not kept."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ResultDropped(AuditRule):
    """A statement computes a new tensor, and nothing keeps it: it has no effect.

    What happened
    -------------
    A line of the program is nothing but a call, or arithmetic, that returns a new tensor. It ran in the step, and nothing took the result.

    Why
    ---
    `masked_fill`, `clamp`, `squeeze` and most other methods of tensors leave their tensor as it is, and return another one. Those that
    change it have an underscore at their end (`masked_fill_`, `clamp_`).

    Example
    -------
    The result of `clamp` is not kept. This prints 5.0, because `x` is as it was:

        import torch

        x = torch.tensor([5.0])
        x.clamp(-1, 1)
        print(x.item())

    Fix
    ---
    Keep the result (`scores = scores.masked_fill(mask, -1e9)`), or call the method that writes into the tensor (`p.grad.clamp_(-1, 1)`).

    Common false explanations
    -------------------------
    "It is applied to the tensor that it is called on": only if its name ends with an underscore.
    """

    name = "result-dropped"
    order = 4

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.unkept:
            source = expression_of(fact.site)
            writes = f", or `{fact.operation}_` if the tensor itself is to be changed (a gradient, or weights under `torch.no_grad()`)" if fact.in_place else ""
            yield Diagnosis(
                self.name, f"the result of `{fact.operation}` is not kept: the line has no effect", Confidence.CERTAIN,
                (culprit(fact.site, Role.CALL, f"returns a new tensor, which nothing takes; what `{fact.operation}` was given stays as it is"),),
                observed(f"`{source}` was computed" + (f" {fact.times} times in the step" if fact.times > 1 else "") + ", and no operation took its result"),
                f"`{fact.operation}` does not change the tensor that it is given.",
                (advice(f"Give the result a name, the same if it is to replace what was there{writes}."),),
            )  # fmt: skip
