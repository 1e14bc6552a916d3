"""What a function cannot do while `vmap`, `grad` or `jacrev` of torch.func run it."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import failed, operand_facts, setting_facts

_CAPTURED = re.compile(r"attempted to call in-place operation \(aten::(\w+)[.\w]*\) that would mutate a captured Tensor")
_NUMBER = re.compile(r"^(int|float|complex|round)\(|\.(item|tolist)\(\)$")
_SINGLE = re.compile(r"vmap: It looks like you're")


class FunctionTransform(CrashRule):
    """A function under `torch.func` changed a tensor from outside, or asked a mapped tensor for one value.

    What happened
    -------------
    `vmap`, `grad`, `vjp`, `jvp` and `jacrev` run your function once, on stand-ins for its arguments. It then wrote in place
    into a tensor that is no argument of it, or it needed a plain number or a truth value where there is one per sample.

    Why
    ---
    A transform knows only what it hands to the function. A write into a tensor from outside could not be taken apart by
    sample or differentiated, so it is refused. And under `vmap` a tensor stands for all samples at once: `if v > 0:` would
    have to go both ways.

    Example
    -------
    This raises "vmap: It looks like you're":

        import torch

        def leaky(x):
            return x if x > 0 else 0.1 * x

        torch.vmap(leaky)(torch.tensor([-1.0, 2.0]))

    Fix
    ---
    Choose with `torch.where`, and return what is to be counted or kept instead of writing it elsewhere. This runs:

        import torch

        torch.vmap(lambda x: torch.where(x > 0, x, 0.1 * x))(torch.tensor([-1.0, 2.0]))

    Common false explanations
    -------------------------
    "In-place operations do not work under `vmap`." On what the function has made itself they do. This prints a tensor of three ones:

        import torch

        def shifted(x):
            y = x * 2
            y.add_(1)
            return y

        print(torch.vmap(shifted)(torch.zeros(3)))
    """

    name = "function-transform"
    messages = (_CAPTURED.pattern, _SINGLE.pattern)
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        captured, single = _CAPTURED.search(operation.message), _SINGLE.search(operation.message)
        what, culprits = shortened(operation.place.source), Culprits()
        if captured:
            culprits.lead(operation, Role.MUTATE, "writes into a tensor from outside the transformed function")
            title = f"`{what}` writes into a tensor from outside the function that is being transformed"
            why = "`grad`, `vmap` and the like know only the tensors that they hand to the function. What a write into another one would mean for each sample, or for the derivative, cannot be told, so it is refused."
            fixes = ("Return the value beside the result and write outside (`grad(f, has_aux=True)` hands it on), or pass the tensor in and return a new one.",)
        elif single:
            asked = bool(_NUMBER.search(operation.place.source))
            culprits.lead(operation, Role.OPERAND, "one value per sample: no single number here" if asked else "one truth value per sample: Python can follow only one")
            title = f"`{what}` asks for one value, and under `vmap` there is one per sample"
            why = "Under `vmap` the function runs once for all samples, and each tensor in it stands for all of them. It has no single value to " + ("give to Python." if asked else "decide an `if`, a `while` or an `assert` by.")
            fixes = ("Keep it a tensor.",) if asked else ("Compute both branches and choose with `torch.where(condition, a, b)`.",)
        else:
            return None
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), (*_facts(operation), *setting_facts(operation)), why, advice(*fixes))


def _facts(operation: FailedOperation) -> list[Fact]:
    """Of `v > 0` its operands; the truth value that was asked for has no expression of its own."""
    return [fact for fact in operand_facts(operation) if not fact.text.startswith("operand ")]
