"""How a mask came to the operation that needs it, or at which call it was not handed on."""

from __future__ import annotations

import ast
import inspect
import typing

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.inputs.padded import Padding, idle_lengths
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import maker
from torchsleuth.auditor.tracing.sites import Place, call_at, site_of
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace

_MASKLIKE = ("mask", "pad", "valid", "keep", "lengths", "lens")
_OF_PADDING = ("pad", "key", "memory", "valid", "lengths", "lens", "attention_mask")
_COMPARING = {"lt", "le", "gt", "ge", "__lt__", "__le__", "__gt__", "__ge__"}
_MEASURING = {"div", "__truediv__", "_pack_padded_sequence", "gather", "__getitem__"}
_TURNING = frozenset({"__invert__", "bitwise_not", "logical_not", "repeat", "repeat_interleave"})


def mask_made(lab: Lab, trace: Trace, op: Op, mask: Seen) -> Site | None:
    """The expression that gave an operand of this call its values, as seen in the program's own step: there the model's buffers were made, too."""
    step = lab.step
    before = sum(_alike(one, op) for one in trace.ops[: op.index])  # a function that pools words and then sentences comes here twice
    alike = [one for one in step.ops if _alike(one, op)] if step else []
    same = next(iter(alike[before:] or alike), None)
    if step is None or same is None or len(same.ins) != len(op.ins):
        return None
    mask = same.ins[op.ins.index(mask)]
    made = maker(step, mask.key, _TURNING)
    while made is not None and _within(same, made) and (flags := next((seen for seen in made.ins if seen.dtype is torch.bool), None)) is not None:
        made = maker(step, flags.key, _TURNING)  # a layer of torch's makes numbers of flags, to be added to the scores
    return step.site(made) if made is not None and made.place.user_code is not None else None


def _alike(op: Op, other: Op) -> bool:
    return op.name == other.name and op.place.code is other.place.code and op.place.offset == other.place.offset


def _within(op: Op, other: Op) -> bool:
    """Both were done by one call of the program's."""
    return (op.place.user_code, op.place.user_offset) == (other.place.user_code, other.place.user_offset)


def idle_mask(lab: Lab, padding: Padding) -> dict[str, typing.Any]:
    """A mask among the inputs that is the same at all positions of the sequence, where padding was told by the ids alone."""
    if padding.mask is not None:
        return {}
    for leaf in lab.call.leaves:
        values = batches.mask_values(leaf)
        if values is not None and leaf is not padding.leaf and tuple(values.shape) == tuple(padding.valid.shape) and values.unique().numel() == 1:
            return {"idle_mask": leaf.name, "made_site": lab.beginning(leaf)}
    return {}


def idle_measure(lab: Lab, padding: Padding) -> dict[str, typing.Any]:
    """Lengths among the inputs that all say the padded width, and that the model measures its rows with."""
    lengths = idle_lengths(lab.call, padding)
    if lengths is None or not measures(lab.trace, lengths):
        return {}
    return {"idle_mask": lengths.name, "idle_width": padding.valid.shape[1], "made_site": lab.beginning(lengths)}


def measures(trace: Trace, lengths: Leaf) -> bool:
    """Does the model compare positions with these lengths, divide by them, pack by them or read at them? (They may also be a feature like any other.)"""
    made = made_of(trace, lengths.tensor)
    for op in trace.ops:
        mine = [seen for seen in op.ins if seen.key in made]
        if mine and (op.name in _COMPARING or (op.name in _MEASURING and len(mine) < len(op.ins))):
            return True
    return False


def made_of(trace: Trace, given: torch.Tensor) -> set[int]:
    """An input and all that was made of it alone."""
    key = trace.known_key(given)
    return derived(trace, key) if key is not None else set()


def derived(trace: Trace, key: int) -> set[int]:
    """This tensor and all that was made of nothing else, numbers aside."""
    found, plain = {key}, set()
    for op in trace.ops:
        if not op.ins or all(s.key in plain for s in op.ins):
            plain.update(s.key for s in op.outs)  # of no input: a range, ones
        elif any(s.key in found for s in op.ins) and all(s.key in found or s.key in plain or s.size == () for s in op.ins):
            found.update(s.key for s in op.outs)
    return found


def not_given(lab: Lab, trace: Trace, op: Op, ahead: bool = False) -> dict[str, typing.Any]:
    """The call at which a part of the model was not given the mask that it takes: `layer(x)` of `def forward(self, x, mask=None)`.

    `ahead`: one that could hide later positions, and not the padding alone.
    """
    model, parts = lab.runner.model, op.module.split(".") if op.module else []
    code, wanted = op.place.user_code, None
    for count in range(len(parts), -1, -1):
        path = ".".join(parts[:count])
        module = model.get_submodule(path)
        if code is None or getattr(type(module).forward, "__code__", None) is not code:
            continue
        called = [place for index, name, place in trace.entered if name == path and index <= op.index]
        call = call_at(called[-1]) if called else None
        optional = _optional_masks(module.forward) | (_handed_as_mask(op, module.forward) if wanted is None else set()) | _given_none(call, module.forward)
        optional = {name for name in optional if not ahead or not any(word in name.lower() for word in _OF_PADDING)}
        wanted = optional if wanted is None else wanted & optional
        if not wanted:
            return {}
        if not path:
            return _not_given_to_the_model(lab, wanted, wanted if ahead else _optional_masks(module.forward))
        if call is None or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return {}
        given = {name: value for name in optional if (value := _argument(call, module.forward, name)) is not None}
        if not given:
            return {"not_given": min(wanted), "made_site": site_of(called[-1])}
        code = called[-1].user_code
        wanted = {value.id for name, value in given.items() if isinstance(value, ast.Name)}
    return {}


def handed(lab: Lab, trace: Trace, op: Op) -> dict[str, typing.Any]:
    """The call that gave a part of the model the mask which this operation applies, where that was chosen: further in it was only handed on."""
    model, parts, code, names = lab.runner.model, op.module.split(".") if op.module else [], op.place.user_code, _names_at(op.place)
    found: dict[str, typing.Any] = {}
    for count in range(len(parts), 0, -1):
        path = ".".join(parts[:count])
        forward = model.get_submodule(path).forward
        if code is None or getattr(forward, "__code__", None) is not code:
            continue
        parameters = [name for name in inspect.signature(forward).parameters if name in names and name != "self"]
        masks = [name for name in parameters if any(word in name.lower() for word in _MASKLIKE)] or parameters
        called = [place for index, name, place in trace.entered if name == path and index <= op.index]
        call = call_at(called[-1]) if called and len(masks) == 1 else None
        if call is not None and any(_argument(call, forward, name) is not None for name in inspect.signature(forward).parameters if name not in masks and _is_mask_name(name)):
            return found  # it was given another one, too: it is chosen here
        value = _argument(call, forward, masks[0]) if call is not None else None
        if value is None or not isinstance(value, ast.Name):
            return found
        found = {"handed": value.id, "made_site": site_of(called[-1])}
        code, names = called[-1].user_code, {value.id}
    return found if code is None or not _takes(model.forward, names) else {}


def _is_mask_name(name: str) -> bool:
    return any(word in name.lower() for word in _MASKLIKE)


def _takes(forward: typing.Callable, names: set[str]) -> bool:
    return any(name in names for name in inspect.signature(forward).parameters)


def _names_at(place: Place) -> set[str]:
    call = call_at(place)
    given = [*call.args, *(keyword.value for keyword in call.keywords)] if call is not None else []
    return {node.id for one in given for node in ast.walk(one) if isinstance(node, ast.Name)}


def hands_mask(place: Place) -> bool:
    """Does this call give something that is called what masks are called?"""
    call = call_at(place)
    given = [*call.args, *(keyword.value for keyword in call.keywords)] if call is not None else []
    names = {node.attr if isinstance(node, ast.Attribute) else node.id for one in given for node in ast.walk(one) if isinstance(node, (ast.Attribute, ast.Name))}
    return any(word in name.lower() for name in names for word in _MASKLIKE)


def _not_given_to_the_model(lab: Lab, wanted: set[str], masks: set[str]) -> dict[str, typing.Any]:
    bound = inspect.signature(lab.runner.model.forward).bind_partial(*lab.call.args, **lab.call.kwargs).arguments
    if lab.called is None or any(bound.get(name) is not None for name in masks):
        return {}
    return {"not_given": min(wanted), "made_site": lab.called}


def _optional_masks(forward: typing.Callable) -> set[str]:
    """The parameters that may be left out and are called what masks are called."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {p.name for p in parameters if p.default is None and any(word in p.name.lower() for word in _MASKLIKE)}


def _given_none(call: ast.Call | None, forward: typing.Callable) -> set[str]:
    """The parameters called what masks are called for which this call gives `None`, in so many words."""
    if call is None or any(isinstance(a, ast.Starred) for a in call.args):
        return set()
    names = list(inspect.signature(forward).parameters)
    pairs = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    return {name for name, value in pairs if name and _is_mask_name(name) and isinstance(value, ast.Constant) and value.value is None}


def _handed_as_mask(op: Op, forward: typing.Callable) -> set[str]:
    """The parameters that may be left out, whatever they are called, and that the call of this operation hands on as a mask."""
    call = call_at(op.place)
    names = {k.value.id for k in call.keywords if k.arg and any(word in k.arg for word in _MASKLIKE) and isinstance(k.value, ast.Name)} if call is not None else set()
    return {name for name in names if (p := inspect.signature(forward).parameters.get(name)) is not None and p.default is None}


def _argument(call: ast.Call, forward: typing.Callable, name: str) -> ast.expr | None:
    """What the call gives for this parameter; None for nothing, and for `None`."""
    names = list(inspect.signature(forward).parameters)
    position = names.index(name)
    value = next((k.value for k in call.keywords if k.arg == name), call.args[position] if position < len(call.args) else None)
    return None if isinstance(value, ast.Constant) and value.value is None else value
