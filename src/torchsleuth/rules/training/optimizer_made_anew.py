"""An optimizer that is built anew for every step."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class OptimizerMadeAnew(AuditRule):
    """Each step is the first step of a new optimizer: what the last one gathered is lost.

    What happened
    -------------
    One line of the program builds an optimizer again and again. Each of them took one step with the same parameters, and nothing else
    wrote into these in between.

    Why
    ---
    Adam, RMSprop and SGD with momentum keep running means of the gradients, which are empty when the optimizer is built. The first
    step of Adam goes by the learning rate in the direction of the gradient's sign, however large the gradient is; with a new Adam for
    every step all steps do. Momentum never builds up.

    Example
    -------
    This prints True: for a gradient a thousand times smaller a new Adam takes a step that is just as long:

        import torch

        lengths = []
        for scale in (1.0, 0.001):
            w = torch.zeros(1, requires_grad=True)
            optimizer = torch.optim.Adam([w], lr=0.1)
            (scale * w).sum().backward()
            optimizer.step()
            lengths.append(w.abs().item())
        print(abs(lengths[0] - lengths[1]) < 1e-4)

    Fix
    ---
    Build the optimizer once, before the loop, and hand it to the function that takes the steps. For another learning rate:
    `for group in optimizer.param_groups: group["lr"] = ...`, or a schedule.

    Common false explanations
    -------------------------
    "It holds the same parameters": but not what it knew about them.
    """

    name = "optimizer-made-anew"
    order = 12

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.made_anew
        if fact is None:
            return
        yield Diagnosis(
            self.name, f"a new {fact.optimizer} is built for every step: what it gathers is lost each time", Confidence.CERTAIN,
            (culprit(fact.site, Role.CREATE, f"built here {fact.count} times, for one step each"),),
            observed(f"{fact.count} steps were taken, each by a new {fact.optimizer}, with the same parameters; each went on from where the last had left them",
                     f"each of them began without its `{fact.kept}`, and was not used again"),
            f"{fact.optimizer} keeps running means of the gradients; one that has just been built has none.",
            (advice("Build it once, before the loop, and use the same one in every step."),),
        )  # fmt: skip
