"""A library refused the sizes of the tensors it was given, by a check of its own."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits, of_axis
from torchsleuth.rules.forward._words import code, described, setting_facts, shape
from torchsleuth.rules.forward.torch_error import first_sentence


class LibraryCheck(CrashRule):
    """A library's own check found a size that does not fit.

    What happened
    -------------
    No operation of torch's failed: a library (transformers, torchmetrics, einops, ...) compared sizes before it computed
    anything, and raised. The report shows your call, the tensors in it, and where the sizes that the message names came from.

    Why
    ---
    A model is built for certain sizes: of images, channels, sequences, classes. Two numbers meet in the check, the one the model
    was built with and the one the tensor has. Which of them is the wrong one the check does not know.

    Example
    -------
    This raises "expected images of 32*32, got 48*48", as a library's check would:

        import torch

        def checked(images, side=32):
            if images.shape[-1] != side:
                raise ValueError(f"expected images of {side}*{side}, got {images.shape[-1]}*{images.shape[-2]}")

        checked(torch.zeros(1, 3, 48, 48))

    Fix
    ---
    Make the two numbers agree: resize or cut the data, or build the model for what the data is. Some libraries can adapt
    (`interpolate_pos_encoding=True` for images, `ignore_mismatched_sizes=True` when weights are loaded).

    Common false explanations
    -------------------------
    "The library is broken, comment the check out." The sizes meet later all the same, in an operation that says less. This raises
    "mat1 and mat2 shapes cannot be multiplied":

        import torch

        torch.nn.Linear(3 * 32 * 32, 10)(torch.zeros(1, 3, 48, 48).flatten(1))
    """

    name = "library-check"
    needs = ("operation",)
    priority = -90

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = evidence.operation
        if operation is None or not operation.refused_by:
            return None
        given = [*(operand for operand in operation.operands if operand.source), *operation.call_operands]
        culprits = Culprits()
        culprits.add(operation.place, Role.CALL, f"{operation.refused_by} refused what it was given here")
        for number in operation.said:
            holders = [(operand, axis) for operand in given for axis, size in enumerate(operand.shape) if size == number]
            if holders and len({id(operand) for operand, _ in holders}) == 1:
                culprits.create(*of_axis(*holders[0]))
        for origin in operation.said_made:
            if not any(origin.size in operand.shape for operand in given):
                culprits.create(origin.made, f"the model is made with {origin.size} here")
        facts = [Fact(f"In your call: {described(operand)}.", operand.known) for operand in given[:6]]
        inner = [operand for operand in operation.operands if not operand.source and not any(_same(operand, own) for own in given)]
        facts += [Fact(f"In the check: `{operand.argument}` has shape {shape(operand.shape)}.", operand.known) for operand in inner[:3]]
        facts += [Fact(f"{origin.size} is what {code(origin.made.place.source)} sets (line {origin.made.place.span.line}).", Known.INFERRED)
                  for origin in operation.said_made if not origin.made.place.source.isdigit()]  # fmt: skip
        facts += setting_facts(operation)
        title = f"{operation.refused_by} refused the sizes in {code(operation.place.source)}"
        why = f"{operation.refused_by} says: {first_sentence(operation.message)}" if operation.message.strip() else (
            f"A check in {operation.refused_by} failed: {' and '.join(str(number) for number in operation.said)} are not what it asks for.")  # fmt: skip
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why)


def _same(one: Operand, other: Operand) -> bool:
    return one.shape == other.shape and one.tensor.dtype == other.tensor.dtype
