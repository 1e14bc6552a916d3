"""Python loops that make thousands of tiny operations."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class LoopInStep(AuditRule):
    """A Python loop over rows or elements makes most of the operations of a step.

    What happened
    -------------
    One loop made most of the autograd nodes of the step (or read numbers out of tensors again and
    again), one small piece of data at a time, and its rounds do not need one another's results.

    Why
    ---
    Every operation costs some microseconds of Python and of bookkeeping for the backward pass, whatever
    its size; reading a number (`.item()`) also waits for the device. One operation on the whole tensor
    does the same work at once. Loops whose rounds build on one another (recurrent networks) are not
    reported.

    Example
    -------
    Row by row and all at once give the same. This prints True:

        import torch

        x = torch.arange(6.0).view(3, 2)
        rows = torch.stack([x[i].sum() for i in range(3)])
        print(torch.equal(rows, x.sum(1)))

    Fix
    ---
    `sum`/`mean`/`amax` with `dim=`, `masked_fill`, `where`, `gather`, `scatter_add`, `torch.vmap`, or a batched
    layer in place of the loop.

    Common false explanations
    -------------------------
    "A loop breaks the gradient": it does not; it is only slow.
    """

    name = "loop-in-step"
    order = 70

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for hot in observation.hot:
            line = hot.site.span.line
            if hot.kind == "item":
                where = f"line {line} reads" if not hot.more else f"lines {line} to {max(s.span.line for s in hot.more)} read"
                title = f"{where} a number out of a tensor {hot.repeats} times in one step"
                fact = f"`{expression_of(hot.site)}` {'and the other reads of this loop ' if hot.more else ''}ran {hot.repeats} times; each time the program waits for the value"
                fix = "Keep the computation in tensors, and read one number at the end."
            else:
                title = f"line {line} made {hot.nodes:,} of the {hot.total:,} nodes of this step"
                fact = f"line {line} made {hot.nodes:,} of {hot.total:,} autograd nodes, in {hot.repeats:,} rounds over results of at most {hot.elements:,} element{'s' * (hot.elements != 1)}"
                if hot.together > hot.nodes:
                    fact += f"; all lines of the loop together made {hot.together:,}"
                fix = "Replace the loop by one tensor operation over the whole axis."
            culprits = []
            if hot.loop is not None:
                culprits.append(culprit(hot.loop, Role.LOOP, f"{hot.rounds or hot.repeats} rounds{' in all' if hot.around else ''}" if hot.kind != "item" or not hot.more else ""))
            culprits += [culprit(site, Role.LOOP, "around it") for site in hot.around]
            culprits += [culprit(site, Role.LOOP) for site in (hot.site, *hot.more)]
            yield Diagnosis(
                self.name, title, Confidence.LIKELY, tuple(culprits), observed(fact),
                "Each operation has a fixed cost in Python and in the backward pass, and the rounds do not depend on one another.",
                (advice(fix),),
            )  # fmt: skip
