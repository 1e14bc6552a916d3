"""Any error that torch raises and no other rule explains."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Argument, FailedOperation, Made, Operand, shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits, of_axis
from torchsleuth.rules.forward._offenders import offender_facts, offenders
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import argument_fact, failed, operand_facts, setting_facts

# A process of the group has gone while this one was waiting for it. What is wrong is in that one's output; no line here is.
_ANOTHER_PROCESS = re.compile(r"(closed|reset) by peer|remote (worker|process) (crash|exited)|communicator was aborted|Broken pipe")


class TorchError(CrashRule):
    """A torch operation refused its arguments.

    What happened
    -------------
    torch raised an error that no more special rule explains. The report shows the operation as you wrote it, every
    tensor that went in with shape, dtype and device, and the argument that the message is about, where it names one.

    Why
    ---
    The message itself is the reason; the facts beside it are there to check it against. Nothing is guessed here.

    Example
    -------
    This raises "upper bound and lower bound inconsistent with step sign":

        import torch

        torch.arange(5, 1)

    Fix
    ---
    Compare what went in with what the message asks for, starting at the argument it names.

    Common false explanations
    -------------------------
    "It is a bug in torch." Nearly always it is an argument: print its shape and dtype on the line before. This prints
    what an operation would see:

        import torch

        x = torch.arange(1, 5)
        print(x.shape, x.dtype)
    """

    name = "torch-error"
    needs = ("operation",)
    priority = -100

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None or _ANOTHER_PROCESS.search(operation.message):
            return None
        if "modified by an inplace operation" in operation.message:
            return self._hidden_save(operation)
        named = _of_kind(operation) or offenders(operation)
        culprits = Culprits()
        message = first_sentence(operation.message)
        lead = next((item for item in named if isinstance(item, Operand)), None)
        label = "this operand" if lead is not None else "this call"
        argument = next((item for item in named if isinstance(item, Argument)), None)
        if argument is not None and lead is None:
            label = argument_fact(argument).replace("`", "")
        culprits.lead(operation, Role.OPERAND, label, lead)
        unknown = "unexpected keyword argument" in message  # whatever its value
        if argument is not None and argument.made is not None and not unknown:
            culprits.create(argument.made, f"{argument.name} = {argument.value} comes from here")
        elif argument is not None and operation.module_made is not None and not unknown:
            culprits.create(operation.module_made, "the layer is made here")
        divided = _not_divisible(named, message)
        for item in divided:
            culprits.create(item.made, f"{item.name} = {item.value} comes from here")
        culprits.create(*_size_said(operation))
        empty = next((operand for operand in operation.operands if operand.tensor.device == "meta"), None) if "meta" in message else None
        if empty is not None:
            culprits.create(empty.device_made, f"{empty.called} is on meta from here")
        facts = offender_facts(named)
        facts += operand_facts(operation)
        told = {item.name for item in (*named, *operation.arguments) if isinstance(item, Argument)}
        shown = [item for item in operation.arguments if item.value and item not in named and item.value not in ("None", "False")]
        shown = [item for item in shown if item.name.partition("[")[0] in (item.name, "") or item.name.partition("[")[0] not in told]
        if shown:
            facts.append(Fact(f"Other arguments: {', '.join(argument_fact(item) for item in shown[:6])}.", Known.OBSERVED))
        facts += setting_facts(operation)
        what = shortened(operation.place.source) or operation.name
        # In a backward pass it is some node that refuses, not the call that started it.
        refused = operation.name and operation.name not in ("backward", "grad")
        unwritten = evidence.exception.type == "NotImplementedError" and 'missing the required "forward"' in operation.message
        title = f"`{what}` calls a module whose class has no `forward`" if unwritten else f"`{operation.name}` refused its arguments in `{what}`" if refused else f"`{what}` failed"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), f"torch says: {message}" + _without_values(empty), advice(*_on_meta(empty), *_kind_advice(_of_kind(operation)), *_divisors(divided), *_ragged(message)))

    def _hidden_save(self, operation: FailedOperation) -> Diagnosis:
        """A node that hides what it saved (a write into a view): the lines alone do not say which one, and `backward` is innocent."""
        why = "torch says: " + first_sentence(operation.message)
        if operation.wrapper:
            facts = tuple(setting_facts(operation))
            return Diagnosis(self.name, f"a tensor that backward needs was overwritten, in {operation.wrapper}", Confidence.POSSIBLE, (), facts, why)
        facts = (Fact("Neither the operation that saved it nor the write could be told from the recorded lines.", Known.OBSERVED),)
        settle = "Run it again with `torchsleuth run --deep`: every operation is then logged, and both lines are named."
        title = "a tensor that backward needs was overwritten; the recorded lines do not say which"
        return Diagnosis(self.name, title, Confidence.POSSIBLE, (), facts, why, advice(settle))


def _without_values(empty: Operand | None) -> str:
    return "" if empty is None else ". A tensor on the meta device has a shape and a dtype, and no values: there is nothing to read."


def _on_meta(empty: Operand | None) -> list[str]:
    return [] if empty is None else ["Make it on a real device. The weights of a model that was made on meta: `load_state_dict(state, assign=True)`; without `assign`, nothing is copied into tensors on meta."]


_KINDS = {"str": r"'|\"", "float": r"-?\d+\.\d*(e|$)|-?\d+e", "NoneType": r"None$"}


def _of_kind(operation: FailedOperation) -> list[Argument]:
    """The one argument that is of the kind which the message complains about: `found element of type str`, `but got float`."""
    said = re.search(r"(?:must be .*?, (?:not|but found element of type)|but got|invalid data type) '?(str|float|NoneType)\b", operation.message)
    whole = [item for item in operation.arguments if "[" not in item.name]
    found = [item for item in whole if re.match(_KINDS[said[1]], item.value)] if said else []
    return found if len(found) == 1 else []


def _kind_advice(found: list[Argument]) -> list[str]:
    if len(found) != 1 or not found[0].source:
        return []
    number = re.fullmatch(r"'(-?\d+)'|(-?\d+)\.0*", found[0].value)
    return [f"`int({found[0].source})`: it is {found[0].value}, and a whole number is wanted."] if number else []


def _ragged(message: str) -> list[str]:
    said = re.search(r"expected sequence of length (\d+) at dim (\d+) \(got (\d+)\)", message)
    if not said:
        return []
    return [f"The rows have different lengths, {said[1]} and {said[3]} among them: pad them first, `torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)`."]


def _not_divisible(named: list[Operand | Argument], message: str) -> list[Argument]:
    """The two numbers of `embed_dim must be divisible by num_heads`, the one to be divided first."""
    numbers = [item for item in named if isinstance(item, Argument) and len(item.numbers) == 1]
    if len(numbers) != 2 or "must be divisible by" not in message:
        return []
    whole, part = sorted(numbers, key=lambda item: -item.numbers[0])
    return [whole, part] if part.numbers[0] > 0 and whole.numbers[0] % part.numbers[0] else []


def _divisors(divided: list[Argument]) -> list[str]:
    if not divided:
        return []
    whole, part = (item.numbers[0] for item in divided)
    fitting = [number for number in range(1, whole + 1) if whole % number == 0]
    near = sorted(sorted(fitting, key=lambda number: abs(number - part))[:4])
    return [f"{whole} is not divisible by {part}: take {' or '.join(map(str, near))} as `{divided[1].name}`, or a multiple of {part} as `{divided[0].name}`."]


def _size_said(operation: FailedOperation) -> tuple[Made | None, str]:
    """The one size of one operand that the message states, greater than what a mere count of dimensions may be."""
    said = {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]*\w)", operation.message)}
    found = [(operand, axis) for operand in operation.operands for axis, size in enumerate(operand.shape) if size in said and size > 8]
    return of_axis(*found[0]) if len(found) == 1 else (None, "")


def first_sentence(message: str, most: int = 400) -> str:
    text = message.split("\nException raised from", 1)[0].strip()
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
