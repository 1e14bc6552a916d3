"""A forward that gives other values for the same inputs and the same random numbers."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import culprits


class NotDeterministic(FunctionRule):
    """A custom forward gives different results for the same inputs.

    What happened
    -------------
    forward was called twice with the same inputs, the random generators of torch, Python and NumPy set to
    the same state, and returned different values. Its derivative cannot be checked, and what backward
    recomputes need not belong to what forward returned.

    Why
    ---
    State outside the arguments: a counter, a generator object of its own, uninitialised memory
    (`torch.empty`), a cache. Drawing from torch's global generator, as dropout does, is not meant here:
    that is repeatable, and is checked.

    Example
    -------
    The generator is forward's own, so resetting torch's seed does not repeat it. This prints False:

        import torch

        own = torch.Generator().manual_seed(0)

        class Noise(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x + torch.randn(x.shape, generator=own)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        x = torch.zeros(3, requires_grad=True)
        torch.manual_seed(0)
        first = Noise.apply(x)
        torch.manual_seed(0)
        print(torch.equal(first, Noise.apply(x)))

    Fix
    ---
    Pass the random numbers (or the state) in as an argument, or draw them from torch's global generator.

    Common false explanations
    -------------------------
    "Floating point is never deterministic": on the same machine, the same operations on the same inputs
    on a CPU give the same bits.
    """

    name = "function-not-deterministic"
    priority = 97

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        return tuple(
            Diagnosis(
                self.name, "forward is not deterministic: the same inputs gave different outputs", Confidence.CERTAIN, culprits(finding.culprit),
                (Fact("two calls with equal inputs and equal states of torch's, Python's and NumPy's generators differ", Known.OBSERVED),),
                "Something outside the arguments takes part in forward. The gradient was not checked, because it belongs to a different function each time.",
            )
            for finding in trial.of_kind("not-deterministic")
        )  # fmt: skip
