"""A limit for gradients that has nothing to limit, or comes too late."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import Unclipped
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class NothingClipped(AuditRule):
    """`clip_grad_norm_` was called and found no gradient, or after the step: the gradients were used unclipped.

    What happened
    -------------
    When `clip_grad_norm_` was called, none of the parameters it was given had a gradient, or it was given none at all.
    Nothing touched the gradients between `backward()` and the step. Or it was called after the step, and what it had clipped was
    cleared before the next one.

    Why
    ---
    `clip_grad_norm_` changes the gradients that are there when it is called; it sets no rule for those to come. Before
    `backward()` there are none (`zero_grad()` has removed them). And an iterator can be walked through once:
    `filter(...)`, `map(...)` or `model.parameters()` that an optimizer was built from is empty afterwards.

    Example
    -------
    The optimizer has used the iterator up. This prints 0.0 and then 3.0: nothing was clipped:

        import torch

        w = torch.ones(1, requires_grad=True)
        parameters = iter([w])
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        (3 * w).sum().backward()
        print(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        print(w.grad.item())

    Fix
    ---
    `backward()`, then `clip_grad_norm_`, then `step()`; and a list (`list(filter(...))`) where the parameters are needed twice.

    Common false explanations
    -------------------------
    "Clipping is switched on once": it acts on what is there, in every step anew.
    """

    name = "nothing-clipped"
    order = 8

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.unclipped
        if fact is None:
            return
        if fact.kind == "late":
            yield _late(fact)
            return
        early = fact.kind == "early"
        culprits = [culprit(fact.site, Role.CALL, "finds no gradient: `backward()` comes after it" if early else "is given an iterator that has come to its end: no parameter")]
        if fact.made is not None:
            culprits.insert(0, culprit(fact.made, Role.CREATE, "can be walked through once", Known.INFERRED))
        if early and fact.backward is not None:
            culprits.append(culprit(fact.backward, Role.CREATE, "the gradients that the step uses are made here"))
        yield Diagnosis(
            self.name, "the gradients are clipped before they are there" if early else "clipping is given an iterator that is used up: nothing is clipped", Confidence.CERTAIN, tuple(culprits),
            observed(
                "none of the parameters it was given had a gradient when it was called" if early else "it was given no parameter at all",
                f"the first step of {fact.optimizer} used gradients of norm {number(fact.norm)}, as `backward()` left them; the limit is {number(fact.limit)}",
            ),
            "`clip_grad_norm_` changes the gradients that are there when it is called." if early else "An iterator can be walked through once, and the optimizer (or a loop) has done that.",
            (advice("Call it between `backward()` and `step()`." if early else "Make a list of the parameters before they are used twice: `list(...)`; or give it `model.parameters()` anew each time."),),
        )  # fmt: skip


def _late(fact: Unclipped) -> Diagnosis:
    culprits = [culprit(fact.site, Role.CALL, "the step has used these gradients already", Known.INFERRED)]
    if fact.backward is not None:
        culprits.append(culprit(fact.backward, Role.MUTATE, "what was clipped is cleared here, before any step could use it"))
    return Diagnosis(
        NothingClipped.name, "the gradients are clipped after the step has used them", Confidence.LIKELY, tuple(culprits),
        observed(
            f"the gradient of `{fact.weight}` had a norm of {number(fact.norm)} when {fact.optimizer} had taken its step; when it was cleared it had {number(fact.limit)}, and nothing had used it in between",
            f"the same was seen after {fact.times} steps",
        ),
        "`clip_grad_norm_` changes the gradients that are there when it is called; a step that has been taken does not change with them.",
        (advice("Call it between `backward()` and `step()`."),),
    )  # fmt: skip
