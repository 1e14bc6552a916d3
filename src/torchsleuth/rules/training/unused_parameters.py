"""Parameters that nothing was computed from, or whose result is dropped."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import Unused
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class UnusedParameters(AuditRule):
    """A layer of your model takes no part in the result: it is never called, or its result is dropped.

    What happened
    -------------
    After `backward()` these parameters have no gradient. The record of the step shows that nothing was
    computed from them, or that what was computed is neither returned nor used in the loss.

    Why
    ---
    A layer built in `__init__` and not called in `forward` is never trained. Neither is one whose
    result is overwritten by the next line (`h = self.a(x); h = self.b(x)` where `self.b(h)` was meant). The same
    happens to a loss: `loss =+ aux` assigns, and so does `loss = ...` in each round of a loop; what the name
    held before is lost, and the layers behind it are not trained. Nor are those of a loss that is added up and forgotten when
    `backward()` is called: on one of its terms, or on another loss.

    Example
    -------
    The second line uses `x` again. This prints None, because `a` has no part in the result:

        import torch

        a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        x = torch.ones(1, 2)
        h = a(x)
        b(x).sum().backward()
        print(a.weight.grad)

    Fix
    ---
    Use the result (`b(h)`), or remove the layer.

    Common false explanations
    -------------------------
    "It is only slow to learn": a parameter without gradient is not changed at all.
    """

    name = "unused-parameters"
    order = 30

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for unused in observation.unused:
            if unused.how == "overwritten":
                yield from _overwritten(unused)
                continue
            if unused.how in ("part", "left-out"):
                yield from _left_out(unused)
                continue
            name = unused.module or unused.weights[0]
            culprits = ()
            if unused.site is not None:
                culprits = (culprit(unused.site, Role.LOST_GRAD, "its result is neither returned nor used in the loss"),)
                if unused.end is not None and unused.end.span != unused.site.span:
                    culprits = (*culprits, culprit(unused.end, Role.LOST_GRAD, "computed from it, and nothing takes this up"))
            elif unused.built is not None:
                culprits = (culprit(unused.built, Role.LOST_GRAD, "made here, and not used in this step"),)
            elif observation.call is not None:
                culprits = (culprit(observation.call, Role.CALL, f"`{name}` is not used in this step"),)
            again = unused.again is not None and unused.first is not None
            if unused.again is not None and unused.first is not None:
                culprits = (culprit(unused.again, Role.CALL, f"gives again what `{expression_of(unused.first)}` (line {unused.first.span.line}) gave: the same layer, the same input"), *culprits)
            for site in unused.twice:
                culprits = (*culprits, culprit(site, Role.CALL, f"one of two calls of `{unused.other}`, a layer of the same kind", Known.INFERRED))
            if unused.how == "dropped":
                title = f"the result of `{name}` ({unused.module_type}) is dropped"
                fact = f"`{name}` was called, but its result is neither in what the model returns nor in the loss"
            else:
                title = f"`{name}` ({unused.module_type}) is never used"
                fact = "no operation of the step took these parameters as an input"
                if unused.again is not None:
                    fact += f", and another layer of this size got one input twice: `{expression_of(unused.again)}`"
            beside = f"`{unused.other}`, a layer of the same kind beside it, is called in two places: {' and '.join(f'`{expression_of(site)}`' for site in unused.twice)}" if unused.twice else ""
            yield Diagnosis(
                self.name, title, Confidence.LIKELY if unused.how == "dropped" or again else Confidence.POSSIBLE, culprits,
                observed(f"{listed(unused.weights)} got no gradient in this step", fact, beside),
                "Parameters that the loss does not depend on are not trained.",
                (advice(f"Call `{name}` in the second place, or remove it." if again else f"If one of the two calls of `{unused.other}` was meant for `{name}`, call `{name}` there; else remove it." if unused.twice else f"Use the result of `{name}`, or remove it."),),
            )  # fmt: skip


def _overwritten(unused: Unused) -> Iterator[Diagnosis]:
    if unused.site is None or unused.end is None:
        return
    name, _, value = (part.strip() for part in unused.end.source.partition("="))
    itself = unused.end.span.line == unused.site.span.line
    culprits = [culprit(unused.end, Role.LOST_GRAD, "each round puts another loss in the place of the one before" if itself else f"`{name}` is given another value here, and the first is gone")]
    if not itself:
        culprits.append(culprit(unused.site, Role.LOST_GRAD, "computed here, and nothing takes this up"))
    fix = f"Add it: `{name} += {value.removeprefix('+').strip()}`." if value.startswith("+") else f"Add the two: `{name} = {name} + ...`; or take the first one out."
    yield Diagnosis(
        UnusedParameters.name, f"the loss that `{name}` holds is overwritten before it is used", Confidence.LIKELY, tuple(culprits),
        observed(f"`{expression_of(unused.site)}` gave one number with a history, and no operation took it"),
        ("`=+` assigns a positive value; `+=` adds. " if value.startswith("+") else "") + "What is not part of the value that `backward()` is called on trains nothing.",
        (advice(fix),),
    )  # fmt: skip


def _left_out(unused: Unused) -> Iterator[Diagnosis]:
    if unused.site is None or unused.end is None:
        return
    whole, asked, part = expression_of(unused.end), expression_of(unused.site), unused.how == "part"
    culprits = (
        culprit(unused.site, Role.LOST_GRAD, f"asks for the gradients of a part of `{whole}`" if part else "asks for the gradients of another loss"),
        culprit(unused.end, Role.LOST_GRAD, "the whole loss: nothing takes this up" if part else "computed with a history, and nothing takes this up"),
    )
    yield Diagnosis(
        UnusedParameters.name, "`backward()` is called on a part of the loss" if part else f"a loss is computed and not trained: `{whole}`", Confidence.LIKELY, culprits,
        observed(
            f"{listed(unused.weights)} got no gradient, and when the program ended no step had written into them",
            f"`{whole}` was computed from them, with a history" + (f", and from what `{asked}` was called on" if part else "") + "; nothing was computed from it",
        ),
        "What is not part of the value that `backward()` is called on trains nothing.",
        (advice("Call `backward()` on the whole of it." if part else "Add it to the loss that `backward()` is called on; or, if it is only to be looked at, compute it under `torch.no_grad()`."),),
    )  # fmt: skip
