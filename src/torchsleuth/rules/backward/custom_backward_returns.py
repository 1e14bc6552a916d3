"""A custom Function's backward returned something that does not fit forward's inputs."""

from __future__ import annotations

import dataclasses
import re

from torchsleuth.evidence import CustomBackward, Evidence, ReturnedGradient
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule

_SHAPE = re.compile(r"[Ff]unction (\w+)Backward returned an invalid gradient at index (\d+) - got (\[.*?\]) but expected shape compatible with (\[.*?\])")
_COUNT = re.compile(r"function (\w+)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
_EXTRA = re.compile(r"function (\w+)Backward returned a gradient different than None at position (\d+)")
_KIND = re.compile(r"expected Variable or None \(got ([\w.]+)\)")
_OTHER = re.compile(r"[Ff]unction (\w+)Backward returned an invalid gradient at index (\d+) - (.*)")


class CustomBackwardReturns(CrashRule):
    """A custom `backward` returned gradients that do not match the inputs of `forward`.

    What happened
    -------------
    `backward` must return one value for each argument of `forward` after `ctx`, in the same order: a gradient of the
    same shape for a tensor, `None` for everything else. What it returned does not fit. The same holds for a backward hook:
    what it returns takes the place of the gradient it was given.

    Why
    ---
    The gradient of an input says how the loss changes with each of its elements, so it has the input's shape. Where
    forward reduced a dimension (sum, mean), backward has to spread the gradient over it again (`unsqueeze`, `expand`);
    where forward broadcast an input, backward has to sum over what was broadcast. PyTorch does the latter itself if the
    returned shape can be reduced to the input's.

    Example
    -------
    This raises "returned an invalid gradient at index 0":

        import torch

        class RowSum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sum(dim=1)

            @staticmethod
            def backward(ctx, grad):
                return grad              # shape [2], but x has [2, 3]

        RowSum.apply(torch.ones(2, 3, requires_grad=True)).sum().backward()

    Fix
    ---
    Return one value per forward argument, each in the shape of its input: here
    `grad.unsqueeze(1).expand(ctx.shape)` with the shape kept on `ctx`. `torchsleuth check` tries the Function on many
    inputs and says what is wrong with the values too.

    Common false explanations
    -------------------------
    "A gradient of a broadcast shape is wrong." It is summed by autograd; this runs and prints the right gradient:

        import torch

        class AddBias(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, bias):
                return x + bias

            @staticmethod
            def backward(ctx, grad):
                return grad, grad        # bias gets [4, 3] and is summed to [3]

        bias = torch.zeros(3, requires_grad=True)
        AddBias.apply(torch.ones(4, 3), bias).sum().backward()
        print(bias.grad)
    """

    name = "custom-backward-returns"
    messages = (
        r"[Ff]unction \w+Backward returned an",
        r"[Ff]unction \w+Backward returned a gradient different than None",
        r"expected Variable or None \(got",
        r"hook '[^']*' has (changed|returned)",
        r"but hook returned '",
    )
    needs = ("custom",)
    priority = 20

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        custom, message = evidence.custom, evidence.exception.message
        if custom is None or custom.raised_inside:
            return None
        if custom.is_hook:
            return _from_hook(self.name, custom, message)
        for pattern, words in ((_SHAPE, _wrong_shape), (_COUNT, _wrong_count), (_EXTRA, _not_none), (_KIND, _wrong_kind), (_OTHER, _otherwise)):
            found = pattern.search(message)
            if found:
                return words(self.name, custom, found)
        return None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _diagnosis(
    rule: str, custom: CustomBackward, title: str, label: str, element: ReturnedGradient | None, facts: list[Fact], why: str, fix: str, computed: bool = False
) -> Diagnosis:
    culprits: list[Culprit] = []
    place = element.place if element is not None and element.place is not None else custom.return_place
    if place is not None:
        culprits.append(place.culprit(Role.RETURN_GRAD, label))
    elif custom.definition is not None:
        culprits.append(custom.definition.culprit(Role.RETURN_GRAD, label))
    if computed and element is not None and element.made is not None:
        culprits.append(element.made.culprit(Role.CREATE, f"computed `{element.source}`"))
    if custom.forward_call is not None:
        call = custom.forward_call.via or custom.forward_call
        label = "made the tensor that the hook is on" if custom.is_hook else f"the forward call of `{custom.function}` this belongs to"
        culprits.append(call.culprit(Role.CALL, label))
    return Diagnosis(
        rule,
        title,
        Confidence.CERTAIN if place is not None else Confidence.LIKELY,
        tuple(culprits),
        tuple(facts),
        why,
        (Fix(fix, Applicability.DISPLAY_ONLY),),
    )


def _element(custom: CustomBackward, position: int) -> ReturnedGradient | None:
    return next((item for item in custom.returns if item.position == position), None)


def _input_name(custom: CustomBackward, position: int) -> str:
    return f"`{custom.parameters[position]}`" if position < len(custom.parameters) else f"input {position}"


def _wrong_shape(rule: str, custom: CustomBackward, found: re.Match) -> Diagnosis:
    position, got, wanted = int(found[2]), _numbers(found[3]), _numbers(found[4])
    name = _input_name(custom, position)
    element = _element(custom, position)
    returned = f"`{element.source}`" if element is not None else f"return value {position}"
    facts = [Fact(f"{returned} has shape {got}; forward's {name} has shape {wanted}.", Known.OBSERVED)]
    relation, fix = _relation(got, wanted)
    other = exchanged_with(custom, position, got)
    if other is not None:
        relation, fix = "", f"Return the gradients in the order of forward's arguments: {', '.join(f'`{n}`' for n in custom.parameters)}."
        facts.append(Fact(f"{got} is the shape of {_input_name(custom, other)}: the returns are in the wrong order.", Known.INFERRED))
    elif relation:
        facts.append(Fact(relation, Known.INFERRED))
    return _diagnosis(
        rule,
        custom,
        f"`{custom.function}.backward` returns a gradient of shape {got} for {name}, which has shape {wanted}",
        f"shape {got}, but {name} has shape {wanted}",
        element,
        facts,
        f"The gradient of an input has one number for each of its elements, so for {name} it must have shape {wanted}"
        " (or one that can be summed to it).",
        fix or f"Return a gradient of shape {wanted} for {name}.",
        computed=other is None,
    )


def exchanged_with(custom: CustomBackward, position: int, got: list[int]) -> int | None:
    """The other input whose shape the returned gradient has, where exactly one has it."""
    fitting = [i for i, fact in enumerate(custom.inputs) if i != position and fact is not None and list(fact.shape) == got]
    return fitting[0] if len(fitting) == 1 else None


def _relation(got: list[int], wanted: list[int]) -> tuple[str, str]:
    """What explains the difference: a dimension that was reduced, kept, moved or flattened."""
    if len(got) == len(wanted) and got != wanted and sorted(got) == sorted(wanted):
        return f"{got} is {wanted} with its dimensions in another order: a transpose is missing or one too many.", "Transpose it."
    for dim in range(len(wanted)):
        if wanted[:dim] + wanted[dim + 1 :] == got:
            return (
                f"{got} is {wanted} without dimension {dim} (size {wanted[dim]}): forward reduced that dimension, and "
                "backward has to spread the gradient over it again.",
                f"Spread it over dimension {dim}: `.unsqueeze({dim}).expand(...)` to {wanted}.",
            )
    if len(got) == len(wanted):
        dims = [dim for dim in range(len(got)) if got[dim] != wanted[dim]]
        if all(got[dim] == 1 for dim in dims):
            return (
                f"Dimension {', '.join(map(str, dims))} has size 1 instead of {', '.join(str(wanted[d]) for d in dims)}: forward "
                "reduced it with keepdim, and backward has to expand it again.",
                f"Expand it to {wanted}.",
            )
    product_got = product_wanted = 1
    for size in got:
        product_got *= size
    for size in wanted:
        product_wanted *= size
    if product_got == product_wanted:
        return f"Both have {product_got} elements: a reshape is missing.", f"Reshape it to {wanted}."
    if not got:
        return "A single number was returned: forward reduced everything.", f"Expand it to {wanted}."
    return "", ""


def _wrong_count(rule: str, custom: CustomBackward, found: re.Match) -> Diagnosis:
    wanted, got = int(found[2]), int(found[3])
    names = ", ".join(f"`{name}`" for name in custom.parameters[:wanted])
    listed = f" ({names})" if names else ""
    missing = ", ".join(f"`{name}`" for name in custom.parameters[got:wanted])
    fix = "Return one value per argument of forward, in order; `None` for what needs no gradient."
    if missing:
        fix += f" Missing: {missing}."
    return _diagnosis(
        rule,
        custom,
        f"`{custom.function}.backward` returns {got} gradient(s), but forward takes {wanted} argument(s){listed}",
        f"returns {got}, forward takes {wanted}",
        None,
        [Fact(f"forward of `{custom.function}` takes {wanted} argument(s) after ctx{listed}; backward returned {got}.", Known.OBSERVED)],
        "Autograd matches what backward returns with forward's arguments by position, so it needs a value for each of them, "
        "also for those that are not tensors.",
        fix,
    )


def _not_none(rule: str, custom: CustomBackward, found: re.Match) -> Diagnosis:
    position = int(found[2]) - 1  # this message counts from 1
    name = _input_name(custom, position)
    return _diagnosis(
        rule,
        custom,
        f"`{custom.function}.backward` returns a gradient for {name}, which is not a tensor",
        f"must be None: {name} is not a tensor",
        _element(custom, position),
        [Fact(f"Argument {position} of forward, {name}, was not a tensor in this call.", Known.OBSERVED)],
        "Only tensors have gradients. For any other argument backward must return None.",
        f"Return `None` at position {position}.",
    )


def _wrong_kind(rule: str, custom: CustomBackward, found: re.Match) -> Diagnosis:
    given = [item for item in custom.returns if item.source != "None"]
    element = next((item for item in given if re.fullmatch(r"-?[\d.]+(e-?\d+)?", item.source)), None)
    if element is None and len(given) == 1:
        element = given[0]
    array = found[1] == "numpy.ndarray"
    return _diagnosis(
        rule,
        custom,
        f"`{custom.function}.backward` returned a {found[1]} where a tensor or None belongs",
        f"a {found[1]}, not a tensor",
        element,
        [Fact(f"One of the values returned by `{custom.function}.backward` is of type {found[1]}.", Known.OBSERVED)],
        "A gradient is a tensor in the shape of its input; " + ("an array of numpy's is not taken for one." if array else "a plain number is not spread over it."),
        "Make a tensor of it: `torch.from_numpy(...)`, in the dtype of the input." if array else "Return a tensor of the input's shape (`torch.full_like(x, value)`), or None.",
        computed=True,
    )


_CHANGED = re.compile(r"has changed the (\w+) of value(?: \(was (\S+) got (\S+)\))?")
_VALUES = re.compile(r"incorrect number of values \(got (\d+), but expected (\d+)\)")
_RETURNED = re.compile(r"expected (\w+), but hook returned '(\w+)'")


def _from_hook(rule: str, custom: CustomBackward, message: str) -> Diagnosis | None:
    changed, values, returned = _CHANGED.search(message), _VALUES.search(message), _RETURNED.search(message)
    if changed:
        what = {"size": "shape"}.get(changed[1], changed[1])
        said = f"returned a gradient of another {what}"
        if changed[2]:
            said += f": {changed[3]} instead of {changed[2]}"
    elif values:
        said = f"returned {values[1]} value(s) where {values[2]} belong"
    elif returned:
        wanted = {"Variable": "tensor"}.get(returned[1], returned[1])
        said = f"returned a {returned[2]} where a {wanted} (or None) belongs"
    else:
        return None
    name = "A lambda" if custom.function == "<lambda>" else f"`{custom.function}`"
    facts = [Fact(f"{name} was the last function to return before PyTorch refused: {message}", Known.OBSERVED)]
    hooked, shape = custom.hooked, custom.returned_shape
    if changed and changed[1] == "size" and hooked is not None:
        facts.append(Fact(f"The hook is on {hooked.called}, whose gradient has shape {hooked.size}.", Known.OBSERVED))
        if shape is not None and shape != hooked.shape:
            said += f", {list(shape)} instead of {hooked.size}"
            facts.append(Fact(f"For a gradient of shape {hooked.size} it returns one of shape {list(shape)}.", Known.RECOMPUTED))
            relation = _relation(list(shape), list(hooked.shape))[0] if "reduced" not in _relation(list(shape), list(hooked.shape))[0] else ""
            facts += [Fact(relation, Known.INFERRED)] if relation else []
    found = _diagnosis(
        rule,
        custom,
        f"{name}, a backward hook, {said}",
        said,
        None,
        facts,
        "What a hook returns takes the place of the gradient it was given, so it must fit the same tensors. A hook that only "
        "looks returns nothing (None).",
        "Return nothing to leave the gradient alone, or one of the same shape, dtype and device.",
    )
    if custom.registered is None:
        return found
    return dataclasses.replace(found, culprits=(*found.culprits, custom.registered.culprit(Role.CALL, "hung the hook on its tensor")))


def _otherwise(rule: str, custom: CustomBackward, found: re.Match) -> Diagnosis:
    position = int(found[2])
    name = _input_name(custom, position)
    return _diagnosis(
        rule,
        custom,
        f"`{custom.function}.backward` returned an invalid gradient for {name}: {found[3]}",
        f"invalid gradient for {name}",
        _element(custom, position),
        [Fact(f"PyTorch says: {found[3]}", Known.OBSERVED)],
        f"What backward returns for {name} must have its shape, dtype and device.",
        f"Return a gradient that fits {name}.",
        computed=True,
    )
