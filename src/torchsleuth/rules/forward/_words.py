"""Words and culprits that the forward rules share: how an operand is described, which line leads, where a size came from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from torchsleuth.evidence import Evidence, Place
from torchsleuth.evidence_forward import Argument, FailedOperation, Made, Operand, SizeOrigin, ValueRange, shortened
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role


# A death on the GPU, whatever the words: the black box may know which operation's values it was.
ON_THE_GPU = (r"CUDA error|device-side assert|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error",)


def is_unexplained_death(evidence: Evidence) -> bool:
    """The GPU stopped, and no recorded call breaks its range: the message alone says nothing about any operation."""
    return evidence.device is not None and not evidence.device.recovered


def failed(evidence: Evidence) -> FailedOperation | None:
    """The failed operation; with the custom backward or hook around it, where it failed in the code of one."""
    operation, custom = evidence.operation, evidence.custom
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
    facts += [Fact(f"In your call: {described(operand)}.", operand.known) for operand in operation.call_operands[:4]]
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


def length_create(operation: FailedOperation, size: int) -> tuple[Made | None, str]:
    """The user's tensor that brings a length into a library, and where it has it from."""
    for operand in operation.call_operands:
        for axis in range(len(operand.shape) - 1, -1, -1):
            if operand.shape[axis] == size and axis > 0:
                return operand.origin_of(axis), f"{operand.called} has its {size} at dimension {axis} from here"
    return None, ""


# -- culprits -------------------------------------------------------------------------------------------


class Culprits:
    """Collects culprits, each line once, the leading one first."""

    def __init__(self) -> None:
        self.found: list[Culprit] = []

    def add(self, place: Place | None, role: Role, label: str) -> bool:
        place = users(place)
        if place is None or any(_same_lines(culprit, place) for culprit in self.found):
            return False
        self.found.append(place.culprit(role, label))
        return True

    def lead(self, operation: FailedOperation, role: Role, label: str, operand: Operand | None = None) -> None:
        """The failing expression: the operand's own expression where it stands in user code, else the user's call."""
        self._lead(operation, role, label, operand)
        if operation.forward_call is not None:
            self.add(operation.forward_call, Role.CALL, "the forward call this backward belongs to")

    def _lead(self, operation: FailedOperation, role: Role, label: str, operand: Operand | None) -> None:
        place = operation.place
        if place.in_library:
            subject = operation.given_for(operand).called if operand is not None else ""
            joint = " " if label.startswith(("holds ", "has ")) else ": "
            self.add(place, Role.CALL, f"{subject}{joint}{label}" if subject else label)
            return
        if operand is not None and operand.place is not None and not operand.place.in_library:
            if operand.place.span.file == place.span.file and place.span.line <= operand.place.span.line <= place.span.end_line:
                self.add(operand.place, role, label)
                return
        self.add(place, role, label)

    def create(self, made: Made | None, label: str) -> bool:
        if made is None:
            return False
        how_far = "the log shows" if made.place.known is Known.OBSERVED else "the live frames tell"
        added = self.add(made.place, Role.CREATE, label if made.complete else f"{label} (as far back as {how_far})")
        given = made.given
        while given is not None:
            self.add(given.place, Role.CREATE, _given_words(given))
            given = given.given
        return added

    def done(self) -> tuple[Culprit, ...]:
        return tuple(self.found)


def _given_words(given: Made) -> str:
    text = shortened(given.place.source, 30)
    if given.operation == "with":
        return "this chooses the device"
    if text.isdigit():
        return f"the {text} is set here"
    return f"{text} is given here" if re.fullmatch(r"[\w.]+(\[[^\[\]]*\])*", text) else "the number comes from here"


def _same_lines(culprit: Culprit, place: Place) -> bool:
    one, other = culprit.span, place.span
    return one.file == other.file and one.line <= other.line <= one.end_line


def made_words(made: Made | None) -> str:
    """`torch.ones(4, 6)` (line 3)."""
    place = users(made.place) if made is not None else None
    if place is None:
        return ""
    return f"{code(place.source)} (line {place.span.line})" if place.source else f"line {place.span.line} of {place.span.file}"


# -- ranges ---------------------------------------------------------------------------------------------


def bad_values(operand: Operand, values: ValueRange, name: str = "") -> str:
    """`ids[2, 5] = 30524`; 3 of 96 values are out of range; legal: 0…30521."""
    name = name or operand.source or operand.tensor.name or operand.argument
    first = values.first[0]
    simple = re.fullmatch(r"[\w.\[\]']+", name) is not None
    position = shape(first.position) if first.position else ""
    where = f"`{name}{position}`" if simple else f"`({shortened(name)}){position}`"
    text = f"{where} = {_number(first.value)}"
    more = [f"{shape(item.position)} = {_number(item.value)}" for item in values.first[1:]]
    if more:
        text += f", also at {', '.join(more)}"
    verb = "is" if values.bad == 1 and not values.at_least else "are"
    count = f"at least {values.bad}" if values.at_least else f"{values.bad}"
    text += f"; {count} of {plural(values.total, 'value')} {verb} out of range; legal: {legal(values)}"
    return text + f" (smallest {_number(values.minimum)}, largest {_number(values.maximum)})."


def legal(values: ValueRange) -> str:
    if values.high >= 2**61:
        return f"{_number(values.low)} and up"
    text = f"{_number(values.low)}…{_number(values.high)}"
    return text if values.ignored is None else f"{text}, and the ignore_index {values.ignored}"


def _number(value: float | int) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# -- broadcasting ----------------------------------------------------------------------------------------


def aligned(operands: list[Operand]) -> str:
    """Shapes one under the other, aligned at the right as broadcasting does, with the clashing dimension marked."""
    rank = max(len(operand.shape) for operand in operands)
    columns = []
    for axis in range(-rank, 0):
        sizes = [str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]
        columns.append((max(len(size) for size in sizes), sizes))
    names = [shortened(operand.source or operand.tensor.name or operand.argument, 32) for operand in operands]
    widest = max(len(name) for name in names)
    rows = []
    for position, name in enumerate(names):
        cells = "  ".join(f"{sizes[position]:>{width}}" for width, sizes in columns)
        rows.append(f"{name:<{widest}}  {cells}")
    marks = "  ".join(f"{'^' * width if clashes(sizes) else ' ' * width}" for width, sizes in columns)
    return "\n".join([*rows, f"{'':<{widest}}  {marks}".rstrip()])


def clashes(sizes: list[str]) -> bool:
    real = {size for size in sizes if size not in ("", "1")}
    return len(real) > 1


def clashing_axes(operands: list[Operand]) -> list[int]:
    """Negative axes at which the shapes cannot be broadcast."""
    rank = max((len(operand.shape) for operand in operands), default=0)
    found = []
    for axis in range(-rank, 0):
        if clashes([str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]):
            found.append(axis)
    return found


def advice(*titles: str) -> tuple[Fix, ...]:
    return tuple(Fix(title, Applicability.DISPLAY_ONLY) for title in titles if title)


def size_creates(culprits: Culprits, operand: Operand, axis: int) -> None:
    """Name the expression where the size of an operand's axis first appeared."""
    own = axis % len(operand.shape) if operand.shape else 0
    culprits.create(operand.origin_of(own), f"{operand.called} has its {operand.shape[own]} at dimension {own} from here")


def report(
    rule: str,
    operation: FailedOperation,
    *,
    title: str,
    why: str,
    label: str,
    role: Role = Role.OPERAND,
    lead: Operand | None = None,
    creates: Iterable[tuple[Made | None, str]] = (),
    facts: Iterable[Fact] = (),
    fixes: Iterable[str] = (),
    confidence: Confidence = Confidence.CERTAIN,
    shown: int = 6,
    mentioned: Iterable[Operand | None] = (),
) -> Diagnosis:
    """The usual form: the failing expression, where its parts came from, the given facts, every operand, the setting."""
    culprits = Culprits()
    culprits.lead(operation, role, label, lead)
    for made, words in creates:
        culprits.create(made, words)
    about = [item for item in offenders(operation, 2) if item is not lead]
    if lead is not None and _naming(lead.argument, operation.message):
        about = []  # the message names the leading operand, too: that is said already
    mentioned = list(mentioned)
    described = other_facts(operation, *mentioned) if mentioned else operand_facts(operation, shown)
    seen = [*facts, *offender_facts(about), *described, *setting_facts(operation)]
    return Diagnosis(rule, title, confidence, culprits.done(), tuple(seen), why, advice(*fixes))


def seen(text: str) -> Fact:
    return Fact(text, Known.OBSERVED)


def inferred(text: str) -> Fact:
    return Fact(text, Known.INFERRED)


def of_axis(operand: Operand | None, axis: int) -> tuple[Made | None, str]:
    """For `creates`: where the size of an axis came from."""
    if operand is None or not operand.shape or not -len(operand.shape) <= axis < len(operand.shape):
        return None, ""
    own = axis % len(operand.shape)
    return operand.origin_of(own), f"{operand.called} has its {operand.shape[own]} at dimension {own} from here"


def of_parts(one: Operand, other: Operand, axis: int) -> tuple[list[tuple[Made | None, str]], list[Fact]]:
    """For two sizes that were joined of several, `logits.view(-1, classes)` and `labels.view(-1)`: those that differ."""
    first, second = one.parts_of(axis), other.parts_of(axis)
    facts, creates = [], []
    for operand, parts in ((one, first), (other, second)):
        if len(parts) > 1:
            product = " × ".join(str(part.size) for part in parts)
            facts.append(seen(f"The {operand.shape[axis]} of {operand.called} are {product}."))
    if len(first) == len(second) > 1:
        for mine, theirs in zip(first, second):
            if mine.size != theirs.size:
                creates += [_of_part(operand, axis, part) for operand, part in ((one, mine), (other, theirs))]
    for operand, parts, size in ((one, first, other.shape[axis]), (other, second, one.shape[axis])):
        if len(parts) > 1 and parts[0].size == size:  # one value for each sample is wanted: what is left over?
            creates += [_of_part(operand, axis, part) for part in parts[1:] if part.size != 1][:2]
            creates.append((operand.input_made, "they are computed from this input"))
    return creates, facts


def _of_part(operand: Operand, axis: int, part: SizeOrigin) -> tuple[Made | None, str]:
    return part.made, f"{operand.called} has the {part.size} in its {operand.shape[axis]} from here"


_HANDED_ON = frozenset({"detach", "detach_", "data", "clone", "contiguous", "cpu", "cuda", "requires_grad_"})


def of_tensor(operand: Operand | None) -> tuple[Made | None, str]:
    """For `creates`: the call that computed the tensor, and not one that only handed it on (`loss.detach()`)."""
    if operand is None:
        return None, ""
    computed = (made for made in operand.chain if made.operation not in _HANDED_ON)
    made = next(computed, operand.made) if operand.made is not None and operand.made.operation in _HANDED_ON else operand.made
    return made, f"{operand.called} {shape(operand.shape)} comes from here"


def elsewhere(operand: Operand | None, operation: FailedOperation) -> tuple[Made | None, str]:
    """As `of_tensor`; where the failing expression itself made the tensor (`labels.float()`), where its rows came from."""
    made, words = of_tensor(operand)
    here, there = users(operation.place), users(made.place) if made is not None else None
    if operand is None or not operand.shape or here is None or there is None or here.span.file != there.span.file:
        return made, words
    if here.span.line <= there.span.line <= here.span.end_line:
        return of_axis(operand, 0)
    return made, words


def squeezer(operand: Operand | None) -> Made | None:
    """For a tensor that lacks a dimension: the `squeeze()` behind it that names none."""
    for made in ((operand.chain or (operand.made,)) if operand is not None else ()):
        place = users(made.place) if made is not None else None
        if made is None or made.operation != "squeeze" or place is None:
            continue
        if re.search(r"\.squeeze\(\)$|^(torch\.)?squeeze\([^,]*\)$", place.source):
            return made
    return None


def squeezed(operand: Operand | None) -> list[Fact]:
    made = squeezer(operand)
    text = f"{made_words(made)} names no dimension: it drops every dimension of size 1, a batch of one included."
    return [inferred(text)] if made is not None else []


def value_words(operand: Operand, what: str) -> str:
    """Said where a bad value came from; where only the syntax tells, the tensor may have been written to since."""
    made = operand.value_made
    if made is not None and made.operation == "loop":
        return f"{operand.called} comes out of this loop"
    return f"{what} comes from here" if made is not None and made.place.known is Known.OBSERVED else f"{operand.called} was made here"


def line_of(message: str) -> str:
    return message.split("\nException raised from", 1)[0].strip().splitlines()[0] if message.strip() else ""


# -- what the message is about ---------------------------------------------------------------------------


def offender_facts(items: list[Operand | Argument]) -> list[Fact]:
    return [Fact(f"The message is about {_offender(item)}.", Known.OBSERVED) for item in items[:3]]


def _offender(item: Operand | Argument) -> str:
    return argument_fact(item) if isinstance(item, Argument) else f"`{item.argument}`: {described(item)}"


_ALIASES = {"self": ("input", "self", "tensor a"), "input": ("input", "self"), "other": ("other", "tensor b")}
# Words of the message that are parameter names by accident.
_EVERYDAY = {"a", "b", "n", "p", "x", "y", "k", "t", "input", "self", "other", "size", "value", "end", "start", "dim", "out", "dtype",
             "tensor", "tensors", "index", "to", "source", "device", "step", "mode"}  # fmt: skip


def offenders(operation: FailedOperation, least: int = 0) -> list[Operand | Argument]:
    """The arguments that the message is about: those it names most plainly."""
    message = operation.message
    scored: list[tuple[int, int, Operand | Argument]] = []
    for position, item in enumerate((*operation.operands, *operation.arguments)):
        name = item.argument if isinstance(item, Operand) else item.name
        score = _naming(name, message)
        if score:
            scored.append((-score, position, item))
    if not scored:
        got = re.search(r"\b(?:got|found|but is|value|given):? (-?\d+(?:\.\d+)?)\b", message)
        if got:
            scored = [(0, 0, item) for item in operation.arguments if item.value == got[1]]
    if scored:
        best = min(item[0] for item in scored)
        if -best < least:
            return []
        scored = [item for item in scored if item[0] == best]
    found = [item for _, _, item in sorted(scored, key=lambda entry: entry[:2])]
    whole = {item.name for item in found if isinstance(item, Argument)}  # `size` says it all, `size[0]` nothing more
    return [item for item in found if not isinstance(item, Argument) or re.sub(r"\[\d+\]$", "", item.name) in (item.name, "") or item.name.split("[")[0] not in whole]


def _naming(name: str, message: str) -> int:
    base = re.sub(r"\[\d+\]$", "", name)
    if not base:
        return 0
    for word in _ALIASES.get(base, (base,)):
        if re.search(rf"argument (?:#\d+ )?['\"`]?{re.escape(word)}['\"`]?|['\"`]{re.escape(word)}['\"`]", message):
            return 3
        if len(word) > 1 and word not in _EVERYDAY and re.search(rf"\b{re.escape(word)}\b", message):
            return 2
        if word in _EVERYDAY and len(word) > 2 and re.search(rf"\b{re.escape(word)}\b(?!ension)", message):
            return 1
    return 0
