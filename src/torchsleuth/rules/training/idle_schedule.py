"""A schedule of learning rates that changes no rate that counts."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed, uncalled
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role


class IdleSchedule(AuditRule):
    """A learning rate schedule was made, and the learning rate stays as it is.

    What happened
    -------------
    The schedule was never advanced while its optimizer took its steps. Or it was advanced, but holds an optimizer that takes no
    step: another one, built later with the same parameters, does.

    Why
    ---
    A schedule changes the rates of the one optimizer that it was given when it was made, each time its own `step()` is called. An
    optimizer that is built anew (after layers were frozen, say) has rates of its own, of which the schedule knows nothing.

    Example
    -------
    The optimizer is built anew after the schedule. This prints 0.1, because the schedule has changed the other one:

        import torch

        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        optimizer = torch.optim.SGD([w], lr=0.1)
        (2 * w).sum().backward()
        optimizer.step()
        schedule.step()
        print(optimizer.param_groups[0]["lr"])

    Fix
    ---
    Make the schedule last, from the optimizer that takes the steps; and call `scheduler.step()`, with its parentheses.

    Common false explanations
    -------------------------
    "The optimizer has the same name": a name is not the object. The schedule keeps the one it was given.
    """

    name = "idle-schedule"
    order = 11

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.idle_schedule
        if fact is None:
            return
        elsewhere = fact.kind == "elsewhere"
        culprits = uncalled(fact.named)
        culprits.append(culprit(fact.site, Role.CREATE, "holds the optimizer that was there when it was made" if elsewhere else "the schedule is made here"))
        if elsewhere and fact.built is not None:
            culprits.append(culprit(fact.built, Role.CREATE, f"the {fact.optimizer} that takes the steps is built here"))
        if elsewhere:
            facts = (f"the schedule was advanced to {fact.advanced}; the optimizer that it holds has taken no step", f"the {fact.optimizer} that took {fact.steps} steps with the same parameters has no schedule")
        else:
            facts = (f"its optimizer took {fact.steps} steps, and before none of them had the schedule been advanced",)
        reads = () if elsewhere or fact.named is not None else ("nothing in the program's source reads the name that it is given",)
        yield Diagnosis(
            self.name, "the schedule holds another optimizer than the one that takes the steps" if elsewhere else "the schedule is made and never advanced: the learning rate stays as it is",
            Confidence.CERTAIN if elsewhere or fact.named is not None else Confidence.LIKELY, tuple(culprits),
            (*observed(*facts), *(Fact(text, Known.INFERRED) for text in reads)),
            "A schedule changes the rates of the optimizer that it was given, and only when its own `step()` is called.",
            (advice("Make the schedule after the optimizer that is used, and give it that one." if elsewhere else "Call `scheduler.step()` after each epoch (or after each step, as the schedule counts)."),),
        )  # fmt: skip
