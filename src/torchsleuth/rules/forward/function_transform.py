"""What a function cannot do while `vmap`, `grad` or `jacrev` of torch.func run it."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import failed, operand_facts, setting_facts

_CAPTURED = re.compile(r"attempted to call in-place operation \(aten::(\w+)[.\w]*\) that would mutate a captured Tensor")
_NUMBER = re.compile(r"^(int|float|complex|round)\(|\.(item|tolist)\(\)$")
_SINGLE = re.compile(r"vmap: It looks like you're")
_RANDOM = re.compile(r"vmap: called random operation while in randomness error mode")
_DIMENSIONS = re.compile(r"in_dims is not compatible with the structure of|Got in_dim=-?\d+ for an input but the input is of type <class '(\w+)'>")


class FunctionTransform(CrashRule):
    """A function under `torch.func` changed a tensor from outside, asked a mapped tensor for one value, drew random numbers, or got other arguments than `in_dims` speaks of.

    What happened
    -------------
    `vmap`, `grad`, `vjp`, `jvp` and `jacrev` run your function once, on stand-ins for its arguments. It then wrote in place
    into a tensor that is no argument of it, or it needed a plain number or a truth value where there is one per sample, or it
    drew random numbers (dropout does). Or `vmap` did not come to run it: `in_dims` did not fit the arguments.

    Why
    ---
    A transform knows only what it hands to the function. A write into a tensor from outside could not be taken apart by
    sample or differentiated, so it is refused. And under `vmap` a tensor stands for all samples at once: `if v > 0:` would
    have to go both ways. Nor can it know whether random numbers are to be the same for all samples; and `in_dims` says for each
    argument which dimension counts the samples, so it needs an entry for each, None for what is no tensor.

    Example
    -------
    This raises "vmap: It looks like you're":

        import torch

        def leaky(x):
            return x if x > 0 else 0.1 * x

        torch.vmap(leaky)(torch.tensor([-1.0, 2.0]))

    Fix
    ---
    Choose with `torch.where`, and return what is to be counted or kept instead of writing it elsewhere. Say
    `randomness="different"` (or `"same"`) where random numbers are wanted. This runs:

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
    messages = (_CAPTURED.pattern, _SINGLE.pattern, _RANDOM.pattern, _DIMENSIONS.pattern)
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        if _RANDOM.search(operation.message):
            return _random(self.name, operation)
        if _DIMENSIONS.search(operation.message):
            return _dimensions(self.name, operation)
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
        _runner(culprits, operation)
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), (*_facts(operation), *setting_facts(operation)), why, advice(*fixes))


def _random(rule: str, operation: FailedOperation) -> Diagnosis:
    what, culprits = shortened(operation.place.source), Culprits()
    culprits.lead(operation, Role.OPERAND, "random numbers are drawn here")
    _runner(culprits, operation)
    why = (
        f"Under `vmap` the function runs once for all samples. Should `{operation.name or what}` draw one set of random numbers for all of them, or one for each? "
        "`vmap` does not guess, and by default refuses."
    )
    fix = 'Tell `vmap`: `randomness="different"` (each sample draws its own) or `randomness="same"`. For dropout that is not wanted here: `.eval()` first.'
    return Diagnosis(rule, f"`{what}` draws random numbers under `vmap`, which was not told how", Confidence.CERTAIN, culprits.done(), (*_facts(operation), *setting_facts(operation)), why, advice(fix))


def _dimensions(rule: str, operation: FailedOperation) -> Diagnosis | None:
    mapped, culprits = operation.mapped, Culprits()
    if mapped is None or mapped.within:
        return None
    entries, foreign = len(re.findall(r"-?\d+|None", mapped.in_dims)), _DIMENSIONS.search(operation.message)
    counted = mapped.in_dims.startswith("(") and entries != mapped.given
    label = f"{mapped.given} arguments; `in_dims` has {entries} {'entry' if entries == 1 else 'entries'}" if counted else "its arguments and `in_dims` do not fit"
    culprits.add(mapped.call, Role.OPERAND, label)
    culprits.create(mapped.made, f"in_dims={mapped.in_dims or '...'} is given here" if mapped.made is not None and "in_dims" in mapped.made.place.source else "this maps over the first dimension of every argument")
    kind = foreign[1] if foreign else ""
    title = f"`vmap` was told of {entries} arguments and got {mapped.given}" if counted else f"`vmap` cannot map over a {kind}" if kind else "`in_dims` does not fit the arguments"
    why = "`in_dims` says for each argument which of its dimensions counts the samples: a number, or None for what all samples share. What is no tensor has no dimensions, so its entry must be None."
    numbers = [Fact(f"`{argument.source or argument.name}` is {argument.value}, no tensor.", Known.OBSERVED) for argument in operation.arguments if argument.value]
    fix = f"`in_dims={mapped.fitting}`." if mapped.fitting else "Give `in_dims` an entry for each argument."
    return Diagnosis(rule, title, Confidence.CERTAIN, culprits.done(), (*operand_facts(operation), *numbers), why, advice(fix))


def _runner(culprits: Culprits, operation: FailedOperation) -> None:
    """The program's call that ran the function under `vmap`, which stands elsewhere."""
    if operation.mapped is not None:
        culprits.add(operation.mapped.call, Role.CALL, "`vmap` runs the function from here")
        if operation.mapped.made is not None and operation.mapped.made.place.span != operation.mapped.call.span:
            culprits.add(operation.mapped.made.place, Role.CREATE, "and was made here")


def _facts(operation: FailedOperation) -> list[Fact]:
    """Of `v > 0` its operands; the truth value that was asked for has no expression of its own."""
    return [fact for fact in operand_facts(operation) if not fact.text.startswith("operand ")]
