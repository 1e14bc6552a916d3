"""Parameters that two optimizers pull in opposite directions."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ContestedParameters(AuditRule):
    """Two optimizers hold the same parameters, and each step of one undoes a step of the other.

    What happened
    -------------
    One optimizer holds all that another one holds, and more. They took steps in turn, and at a parameter that both hold the gradients
    of two steps that followed one another pointed in opposite directions, each time.

    Why
    ---
    In adversarial training the generator is to raise what the critic's loss wants lowered. If the critic's optimizer was given the
    parameters of both (`gan.parameters()`), and its loss reaches the generator, it also teaches the generator to be found out: what
    one step has taught the other takes back.

    Example
    -------
    The second optimizer holds `w`, too, and goes the other way. This prints True:

        import torch

        w, c = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        making, judging = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([w, c], lr=0.1)
        for optimizer, sign in ((judging, 1.0), (making, -1.0)):
            optimizer.zero_grad()
            (sign * w).sum().backward()
            optimizer.step()
        print(abs(w.item() - 1.0) < 1e-6)

    Fix
    ---
    Give each optimizer the parameters of its own part (`gan.critic.parameters()`), and the critic's loss `fake.detach()`.

    Common false explanations
    -------------------------
    "Adversarial training is unstable": not because of this; two players need two sets of parameters.
    """

    name = "contested-parameters"
    order = 8

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.contested
        if fact is None:
            return
        culprits = [culprit(fact.site, Role.CALL, "holds all that the other optimizer holds, and more")]
        if fact.other is not None and fact.other.span != fact.site.span:
            culprits.append(culprit(fact.other, Role.CALL, "holds them, too"))
        yield Diagnosis(
            self.name, f"two optimizers train {listed(fact.weights, 2)} in opposite directions", Confidence.LIKELY, tuple(culprits),
            observed(f"both optimizers hold {listed(fact.weights)}",
                     f"in {fact.turns} turns from one to the other the two gradients at one of these pointed against each other each time (a cosine of {number(fact.cosine)} or less)"),
            "Each step of one takes back what a step of the other has done; these parameters are to learn from one of the two losses alone.",
            (advice("Give each optimizer the parameters of its own part; cut the history of what the other part has made (`fake.detach()`)."),),
        )  # fmt: skip
