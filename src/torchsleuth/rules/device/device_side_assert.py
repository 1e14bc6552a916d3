"""A check inside a GPU kernel failed."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_device import DeviceDeath
from torchsleuth.evidence_forward import FailedOperation, Operand, ValueRange
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.device._words import SETTLE, calls_facts, noticed_fact, printed_fact, watching_facts
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import bad_values, code, legal, other_facts, setting_facts, value_words


class DeviceSideAssert(CrashRule):
    """A kernel on the GPU found a value that it does not allow.

    What happened
    -------------
    Kernels that use indices, class labels or probabilities check them on the GPU. A check failed, the GPU stopped, and
    from then on every call that needs it raises "CUDA error: device-side assert triggered", wherever the program
    happens to be. Where torchsleuth had recorded the values, the report is that of the mistake itself
    (index-out-of-range, class-out-of-range); this page is about what is left.

    Why
    ---
    The program only queues work for the GPU and runs ahead of it. The exception comes up at the first call that waits:
    a `.item()`, a `print`, an unrelated operation, `backward()`. The kernel that failed was queued earlier.

    Example
    -------
    On the CPU the same mistake is reported where it is made. This raises "index out of range in self":

        import torch

        torch.nn.Embedding(10, 4)(torch.tensor([3, 10]))

    Fix
    ---
    Correct the index, label or probability that the report shows. Where it shows none, run the program again with
    `torchsleuth run --guard`: it checks on the host before each such kernel, and stops at the line itself.

    Common false explanations
    -------------------------
    "It is a driver or installation problem." It is the data. The same labels raise on the CPU. This raises
    "Target 3 is out of bounds":

        import torch

        torch.nn.functional.cross_entropy(torch.zeros(1, 3), torch.tensor([3]))

    "The line in the traceback is wrong." It need not have anything to do with it: it is where the program waited.
    """

    name = "device-side-assert"
    messages = (r"device-side assert",)
    needs = ("device", "operation")
    priority = 0

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        device, operation = evidence.device, evidence.operation
        if device is None or device.kind != "assert":
            return None
        if device.recovered and operation is not None:
            return self._values(operation)
        return self._unexplained(device)

    def _values(self, operation: FailedOperation) -> Diagnosis | None:
        """What is no index: probabilities, masks, conditions that the program asserts itself."""
        bad = operation.operands[-1] if operation.operands else None
        if bad is None:
            return None
        culprits, facts, fixes = Culprits(), [], ()
        values = bad.values
        if values is not None and values.bad and values.limit == "compiled":
            return self._compiled(operation, bad, values)
        if values is not None and values.bad:
            first = values.first[0].value
            culprits.lead(operation, Role.INDEX, f"holds {first:.4g}; legal: {_legal(values.limit, legal(values))}", bad)
            culprits.create(bad.value_made, value_words(bad, f"the value {first:.4g}"))
            facts.append(Fact(bad_values(bad, values).replace(legal(values), _legal(values.limit, legal(values))), Known.OBSERVED))
            title = f"{bad.called} holds {first:.4g}, and `{operation.name}` takes {_legal(values.limit, legal(values))} only"
            why = _WHY.get((operation.name, bad.argument)) or _WHY.get((operation.name, ""), "The kernel checks every value it is given.")
            fixes = advice(*_FIXES.get(operation.name, ()))
        elif operation.name == "masked_scatter":
            culprits.lead(operation, Role.INDEX, "the mask has more True than the source has elements", bad)
            title = f"{code(operation.place.source)}: the mask has more True than there are values to put"
            why = "masked_scatter puts one element of the source at each True of the mask, so the source needs at least as many."
        else:
            culprits.lead(operation, Role.INDEX, "this was not true", bad)
            title = f"the condition in {code(operation.place.source)} was not true on the GPU"
            why = "The program (or a library) asserts a condition on the GPU, and it did not hold."
        facts += other_facts(operation, bad) + setting_facts(operation)
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, fixes)

    def _compiled(self, operation: FailedOperation, bad: Operand, values: ValueRange) -> Diagnosis:
        culprits, first, size = Culprits(), values.first[0].value, int(values.high) + 1
        culprits.lead(operation, Role.INDEX, f"holds {first}; legal: {legal(values)}", bad)
        culprits.create(bad.value_made, value_words(bad, f"the value {first}"))
        facts = [
            Fact(bad_values(bad, values), Known.OBSERVED),
            Fact(f"No other whole number that went into this compiled call lies outside {legal(values)}, unless it did in earlier calls, which ran.", Known.OBSERVED),
        ]  # fmt: skip
        why = (
            f"torch.compile writes a check for every index into its code. The one that failed is for a dimension of size {size}, and of what this "
            f"compiled call was given only {bad.called} breaks it. Where inside the compiled code it is used was not recorded."
        )
        title = f"{bad.called} holds {first}, and the compiled code uses an index into a dimension of size {size}"
        fixes = advice(f"Correct {bad.called} where it is made, or make what it indexes large enough.", SETTLE)
        return Diagnosis(self.name, title, Confidence.LIKELY, culprits.done(), tuple(facts + other_facts(operation, bad)), why, fixes)

    def _unexplained(self, device: DeviceDeath) -> Diagnosis:
        culprits = Culprits()
        facts: list[Fact] = []
        if device.blocking and device.noticed is not None:
            culprits.add(device.noticed, Role.CALL, "the kernel was started here")
        if device.text is not None:
            facts.append(printed_fact(device.text))
        if device.compiled:
            facts.append(Fact("The check is in code that torch.compile wrote, inside which nothing is watched; no argument of a compiled call explains it alone.", Known.OBSERVED))
        facts += noticed_fact(device) + watching_facts(device)
        listed = calls_facts(device)
        if listed:
            facts.append(Fact("No recorded index, label or probability explains it. The last operations that were watched, newest first:", Known.OBSERVED))
            facts += listed
        why = (
            "The GPU works behind the program, and stops when a check inside a kernel fails. Which kernel it was is not known here."
            if not device.blocking
            else "CUDA_LAUNCH_BLOCKING is set, so the program waited for each kernel: the one that failed was started on this line."
        )
        return Diagnosis(self.name, "a check inside a GPU kernel failed, and the recorded values do not say which", Confidence.POSSIBLE,
                         culprits.done(), tuple(facts), why, advice(SETTLE))  # fmt: skip


def _legal(limit: str, text: str) -> str:
    return "finite values of 0 and up" if limit == "weight" else text


_WHY = {
    ("binary_cross_entropy", "input"): "binary_cross_entropy takes the logarithm of its input and of 1 minus its input: both need a probability, 0 … 1.",
    ("binary_cross_entropy", "target"): "binary_cross_entropy weighs two logarithms with the target, which must be a probability, 0 … 1.",
    ("multinomial", ""): "multinomial draws with these numbers as weights: a negative one, an infinite one or NaN has no meaning.",
    ("bernoulli", ""): "bernoulli draws 1 with this probability: it must lie in 0 … 1.",
}
_FIXES = {
    "binary_cross_entropy": ("Use `binary_cross_entropy_with_logits` on raw scores, or apply `sigmoid` first; scale targets to 0 … 1.",),
    "multinomial": ("Give it `softmax(logits, dim=-1)`; look for NaN or Inf where the scores are made.",),
    "bernoulli": ("Apply `sigmoid` to raw scores, or `clamp(0, 1)`.",),
}
