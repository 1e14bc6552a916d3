"""Words that the forward rules share: how an operand, an argument, a bad value and the setting are described."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from torchsleuth.evidence import Evidence, Place
from torchsleuth.evidence_forward import Argument, FailedOperation, Made, Operand, ValueRange, shortened
from torchsleuth.model import Fact, Known
from torchsleuth.wording import is_primary, line_words

# A death on the GPU, whatever the words: the black box may know which operation's values it was.
ON_THE_GPU = (r"CUDA error|device-side assert|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error",)


def is_unexplained_death(evidence: Evidence) -> bool:
    """The GPU stopped, and no recorded call breaks its range: the message alone says nothing about any operation."""
    return evidence.device is not None and not evidence.device.recovered


def failed(evidence: Evidence) -> FailedOperation | None:
    """The failed operation; with the custom backward or hook around it, where it failed in the code of one."""
    operation, custom = evidence.operation, evidence.custom
    if operation is not None and operation.refused_by:
        return None  # the words are a library's, whatever they are like
    if operation is None or custom is None or not custom.raised_inside:
        return operation
    inside = f"the hook `{custom.function}`" if custom.is_hook else f"`{custom.function}.backward`"
    return dataclasses.replace(operation, inside=inside, forward_call=custom.forward_call)


def users(place: Place | None) -> Place | None:
    """The place in the user's own code: the expression itself, or their call that led to it."""
    if place is None:
        return None
    if not place.in_library:
        return place
    return place.via if place.via is not None and not place.via.in_library else None


def shape(sizes: Iterable[int]) -> str:
    return f"[{', '.join(str(size) for size in sizes)}]"


def expr(operand: Operand, default: str = "x") -> str:
    """The operand's expression, bracketed where a method could not be called on it as it stands."""
    text = operand.source or operand.tensor.name or default
    return text if re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])*", text) else f"({text})"


def plural(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}"


def code(text: str) -> str:
    return f"`{shortened(text)}`"


def described(operand: Operand) -> str:
    """`x` has shape [4, 5], float32, on cpu."""
    tensor = operand.tensor
    return f"{fully(operand)} has shape {shape(operand.shape)}, dtype {tensor.dtype}, on {tensor.device}"


def fully(operand: Operand) -> str:
    """`self.positions` (parameter `model.positions`)."""
    tensor, name = operand.tensor, operand.called
    return f"{name} ({tensor.kind} `{tensor.name}`)" if tensor.kind in ("parameter", "buffer") and name != f"`{tensor.name}`" else name


def operand_facts(operation: FailedOperation, most: int = 8, but: Iterable[Operand | None] = ()) -> list[Fact]:
    """Every operand but those given: inputs first, a layer's own parameters after them, so many at most."""
    if most == 0:
        return []
    told = list(but)
    operands = [operand for operand in operation.operands if not any(operand is other for other in told)]
    operands.sort(key=lambda operand: operand.tensor.kind in ("parameter", "buffer"))
    facts = []
    for operand in operands[:most]:
        role = f"{operand.argument}: " if operand.argument not in ("", "self") and f"`{operand.argument}`" != operand.called else ""
        facts.append(Fact(f"{role}{described(operand)}.", operand.known))
    rest = len(operands) - most
    if rest > 0:
        facts.append(Fact(f"… and {plural(rest, 'more tensor')}.", Known.OBSERVED))
    given = [operand for operand in operation.call_operands if operation.place.in_library or not any(operand is other for other in told)]
    facts += [Fact(f"In your call: {described(operand)}.", operand.known) for operand in given[:4]]
    return facts


def other_facts(operation: FailedOperation, *mentioned: Operand | None) -> list[Fact]:
    """The operands that the other facts have not described."""
    return operand_facts(operation, 12, mentioned)


def argument_fact(argument: Argument) -> str:
    text = f"`{argument.name}` = {argument.value}" if argument.value else f"`{argument.name}`"
    if argument.source and argument.source != argument.value:
        text += f" (your {code(argument.source)})"
    return text


def setting_facts(operation: FailedOperation) -> list[Fact]:
    """Where it happened: the module, the wrapper, the sample."""
    facts = []
    if operation.inside:
        facts.append(Fact(f"It failed in the code of {operation.inside}, which `backward()` had called.", Known.OBSERVED))
    if operation.module:
        facts.append(Fact(f"It happened in `{operation.module}` ({operation.module_type}).", Known.OBSERVED))
    elif operation.module_type:
        facts.append(Fact(f"It happened in a {operation.module_type} module.", Known.OBSERVED))
    if operation.took is not None:
        taken = "an input" if operation.took.times == 1 else f"{operation.took.times} inputs before, the last one"
        before = " before" if operation.took.times == 1 else ""
        facts.append(Fact(f"The same layer has taken {taken} of shape {shape(operation.took.shape)}{before}.", Known.OBSERVED))
    place = operation.place
    if place.in_library and users(place) is not None:
        facts.append(Fact(f"Inside the library: {library_file(place)}:{place.span.line}, {code(place.source)}.", Known.OBSERVED))
    if operation.wrapper:
        text = f"The error arrived as the text of {operation.wrapper}: its tensors are not at hand."
        if operation.wrapper == "vmap":
            text = "The function ran under `vmap`: shapes are without the mapped dimension."
        elif operation.wrapper == "torch.compile":
            text = "The function was compiled by `torch.compile`; shapes are those it was traced with."
        elif operation.wrapper == "another process":
            text += " `with torchsleuth.watch():` around what that process runs diagnoses it there."
        facts.append(Fact(text, Known.OBSERVED))
    if operation.sample:
        facts.append(Fact(operation.sample, Known.OBSERVED))
    return facts


def library_file(place: Place) -> str:
    """Below site-packages: `transformers/models/bert/modeling_bert.py`."""
    return re.split(r"(?:site|dist)-packages[/\\\\]", place.span.file)[-1]


def config_facts(operation: FailedOperation, *sizes: int) -> list[Fact]:
    """Which entry of the model's configuration a size is."""
    found = []
    for size in dict.fromkeys(sizes):
        names = [name for name, value in operation.config if value == size]
        if names and size > 1:
            found.append(Fact(f"{size} is the model's {' and '.join(f'`{name}`' for name in names)}.", Known.OBSERVED))
    return found


def is_about_positions(operation: FailedOperation, *names: str) -> bool:
    """Whether the failing place deals with positions in a sequence, as far as its names tell."""
    text = " ".join((operation.module, operation.place.source, *names)).lower()
    return bool(re.search(r"position|\bwpe\b|seq_len|token_type_ids", text))


TRUNCATE = "Truncate: `tokenizer(..., truncation=True, max_length=...)`, or build the model with a larger `max_position_embeddings`."


def made_words(made: Made | None, operation: FailedOperation | None = None) -> str:
    """`torch.ones(4, 6)` (line 3), with the file where that is not the operation's."""
    place = users(made.place) if made is not None else None
    if place is None:
        return ""
    failed_at = users(operation.place) if operation is not None else None
    line = line_words(place.span, failed_at.span if failed_at is not None else place.span)
    return f"{code(place.source)} ({line})" if place.source else line_words(place.span)


def bad_values(operand: Operand, values: ValueRange, name: str = "") -> str:
    """`ids[2, 5] = 30524`; 3 of 96 values are out of range; legal: 0…30521."""
    name = name or operand.source or operand.tensor.name or operand.argument
    first = values.first[0]
    simple = is_primary(name)
    position = shape(first.position) if first.position else ""
    where = f"`{shortened(name)}{position}`" if simple else f"`({shortened(name)}){position}`"
    text = f"{where} = {_number(first.value)}"
    more = [f"{shape(item.position)} = {_number(item.value)}" for item in values.first[1:]]
    if more:
        text += f", also at {', '.join(more)}"
    verb = "is" if values.bad == 1 and not values.at_least else "are"
    count = f"at least {values.bad}" if values.at_least else f"{values.bad}"
    text += f"; {count} of {plural(values.total, 'value')} {verb} out of range; legal: {legal(values)}"
    if values.minimum != values.minimum:  # NaN is neither
        return f"{text}."
    return text + f" (smallest {_number(values.minimum)}, largest {_number(values.maximum)})."


def legal(values: ValueRange) -> str:
    if values.high >= 2**61:
        return f"{_number(values.low)} and up"
    text = f"{_number(values.low)}…{_number(values.high)}"
    return text if values.ignored is None else f"{text}, and the ignore_index {values.ignored}"


def _number(value: float | int) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seen(text: str) -> Fact:
    return Fact(text, Known.OBSERVED)


def inferred(text: str) -> Fact:
    return Fact(text, Known.INFERRED)


def value_words(operand: Operand, what: str) -> str:
    """Said where a bad value came from; where only the syntax tells, the tensor may have been written to since."""
    made = operand.value_made
    if made is not None and made.operation == "loop":
        return f"{operand.called} comes out of this loop"
    if made is not None and made.operation == "copied":
        return f"{what} passes here: no tensor held it before"
    sure = made is not None and (made.place.known is Known.OBSERVED or made.operation == "value")
    return f"{what} comes from here" if sure else f"{operand.called} was made here"


def line_of(message: str) -> str:
    return message.split("\nException raised from", 1)[0].strip().splitlines()[0] if message.strip() else ""
