"""The expressions that a forward diagnosis names: the failing one, and where an operand, a size or a number of it came from."""

from __future__ import annotations

import re

from torchsleuth.evidence import Place
from torchsleuth.evidence_forward import Divided, FailedOperation, Made, Operand, SizeOrigin, shortened
from torchsleuth.model import Culprit, Fact, Known, Role
from torchsleuth.rules.forward._words import inferred, made_words, seen, shape, users


def length_create(operation: FailedOperation, size: int) -> tuple[Made | None, str]:
    """The user's tensor that brings a length into a library, and where it has it from."""
    for operand in operation.call_operands:
        for axis in range(len(operand.shape) - 1, -1, -1):
            if operand.shape[axis] == size and axis > 0:
                return operand.origin_of(axis), f"{operand.called} has its {size} at dimension {axis} from here"
    return None, ""


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
    if given.operation == "length":
        return "the dataset says here how many samples there are"
    if given.operation == "with":
        return "this chooses the device"
    if given.operation == "autocast":
        return "autocast is on from here"
    if given.operation == "layer":
        return "this layer's kernel, stride and padding make it so"
    if given.operation == "mask":
        return "this mask is false everywhere"
    if given.operation == "copied":
        return "the number passes here"
    if text.isdigit():
        return f"the {text} is set here"
    return f"{text} is given here" if re.fullmatch(r"[\w.]+(\[[^\[\]]*\])*", text) else "the number comes from here"


def _same_lines(culprit: Culprit, place: Place) -> bool:
    one, other = culprit.span, place.span
    return one.file == other.file and one.line <= other.line <= one.end_line


def size_creates(culprits: Culprits, operand: Operand, axis: int) -> None:
    """Name the expression where the size of an operand's axis first appeared."""
    own = axis % len(operand.shape) if operand.shape else 0
    culprits.create(operand.origin_of(own), f"{operand.called} has its {operand.shape[own]} at dimension {own} from here")
    terms = operand.terms_of(own)
    if len({term.made.place.span for term in terms if term.made is not None}) == 1:  # the same size several times, from one place
        culprits.create(terms[0].made, f"{' + '.join(str(term.size) for term in terms)} come from here")


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


def of_rests(one: Operand, other: Operand, axis: int) -> tuple[list[tuple[Made | None, str]], list[Fact]]:
    """For feature maps of one network whose sizes went apart: where one of them was halved, and the other one not, with a rest."""
    own = axis % len(one.shape)
    rests = [
        rest
        for operand, beside in ((one, other), (other, one))
        for rest in operand.divided
        if rest.axis == own and rest not in beside.divided and _went_apart(operand, beside, own)
    ][:2]
    creates: list[tuple[Made | None, str]] = [(rest.made, _divided_words(rest, " here")) for rest in rests]
    return creates, [seen(f"In {made_words(rest.made)} {_divided_words(rest)}.") for rest in rests]


def _went_apart(divided: Operand, other: Operand, axis: int) -> bool:
    """Both were computed from one input, or the other one has the size that the input of this one had (a decoder's target)."""
    if divided.input_made is None:
        return False
    if other.input_made is not None and other.input_made.place.span == divided.input_made.place.span:
        return True
    return any(origin.axis == axis and origin.size == other.shape[axis] for origin in divided.input_sizes)


def _divided_words(rest: Divided, here: str = "") -> str:
    return f"{rest.before} becomes {rest.after}{here}, and {rest.times} × {rest.after} is {rest.times * rest.after}"


def of_terms(operation: FailedOperation, operand: Operand | None, axis: int) -> tuple[list[tuple[Made | None, str]], list[Fact]]:
    """For a layer whose input was joined of several tensors: those that its constructor did not count, and what it counted instead."""
    terms = operand.terms_of(axis) if operand is not None else ()
    if operand is None or not terms:
        return [], []
    have = operand.shape[axis]
    creates: list[tuple[Made | None, str]] = [(term.made, f"{operand.called} has the {term.size} in its {have} from here") for term in operation.not_counted[:2]]
    creates += [(part, "the layer's size is computed from this") for part in operation.computed_from[:3]]
    return creates, [seen(f"The {have} of {operand.called} are {' + '.join(str(term.size) for term in terms)}, joined by {made_words(operand.origin_of(axis))}.")]


_HANDED_ON = frozenset({"detach", "detach_", "data", "clone", "contiguous", "cpu", "cuda", "requires_grad_"})


def of_tensor(operand: Operand | None) -> tuple[Made | None, str]:
    """For `creates`: the call that computed the tensor, and not one that only handed it on (`loss.detach()`)."""
    if operand is None:
        return None, ""
    computed = (made for made in operand.chain if made.operation not in _HANDED_ON)
    made = next(computed, operand.made) if operand.made is not None and operand.made.operation in _HANDED_ON else operand.made
    return made, f"{operand.called} {shape(operand.shape)} comes from here"


def is_at_failure(made: Made | None, operation: FailedOperation) -> bool:
    """Whether the failing expression itself made this: it is no news then."""
    here, there = users(operation.place), users(made.place) if made is not None else None
    if here is None or there is None or here.span.file != there.span.file:
        return False
    return here.span.line <= there.span.line <= here.span.end_line


def elsewhere(operand: Operand | None, operation: FailedOperation) -> tuple[Made | None, str]:
    """As `of_tensor`; where the failing expression itself made the tensor (`labels.float()`), where its rows came from."""
    made, words = of_tensor(operand)
    if operand is None or not operand.shape or not is_at_failure(made, operation):
        return made, words
    before = next((step for step in operand.chain if not is_at_failure(step, operation)), None)
    return (before, f"{operand.called} is made of this") if before is not None else of_axis(operand, 0)


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
