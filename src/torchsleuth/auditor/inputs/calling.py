"""How the model is called: arguments from a batch as users give it, and a loss from what they call one."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping

import torch
from torch import nn

from torchsleuth.auditor.inputs.batch import Call, signature_of
from torchsleuth.auditor.inputs.padded import known_padding
from torchsleuth.auditor.laboratory.runner import unwrapped
from torchsleuth.errors import UsageError

_BATCHES = frozenset({"batch", "inputs", "data", "b", "sample"})  # what a loss calls the whole batch, when it takes that


def arguments(
    model: nn.Module, batch: typing.Any, target: typing.Any, loss_fn: typing.Callable | None = None
) -> tuple[tuple, dict, typing.Any]:
    """Positional and keyword arguments from a batch, and the target if it travelled with it.

    Keys that `forward` does not take are the loss's, where it takes a second argument.
    """
    if isinstance(batch, Mapping):
        mapping = dict(batch)
        accepted = _keywords(model)
        if accepted is not None and any(key not in accepted for key in mapping):
            extra = {k: v for k, v in mapping.items() if k not in accepted}
            if not all(k in mapping and (k.lower() in ("y", "target", "targets", "label", "labels")) for k in extra):
                if not any(k in accepted for k in mapping):
                    return (batch,), {}, target  # the model takes the dict itself
                if loss_fn is not None and len(_required(loss_fn)) == 2:
                    alone = next(iter(extra.values())) if target is None and len(extra) == 1 else target
                    return (), {k: v for k, v in mapping.items() if k in accepted}, alone
                raise UsageError(f"the model's forward takes no argument {', '.join(map(repr, extra))}; it takes {', '.join(sorted(accepted))}")
            if len(accepted) and not any(k in accepted for k in mapping):
                return (batch,), {}, target
            target = next(iter(extra.values())) if target is None else target
            mapping = {k: v for k, v in mapping.items() if k in accepted}
        return (), mapping, target
    if isinstance(batch, (tuple, list)) and not hasattr(batch, "_fields"):
        items = tuple(batch)
        if target is None and len(items) >= 2 and not _binds(model, items) and _binds(model, items[:-1]):
            return items[:-1], {}, items[-1]
        if isinstance(batch, list) and not _binds(model, items) and _binds(model, (batch,)):
            return (batch,), {}, target
        return items, {}, target
    return (batch,), {}, target


def padded_inputs(model: nn.Module, batch: typing.Any) -> list[str]:
    """Names of the sequence inputs of which some positions are recognised as padding."""
    inner, _ = unwrapped(model)
    args, kwargs, _ = arguments(inner, batch, None)
    return [padding.leaf.name for padding in known_padding(Call(inner, args, kwargs))[0]]


def _binds(model: nn.Module, items: tuple) -> bool:
    try:
        signature_of(model).bind(*items)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _keywords(model: nn.Module) -> set[str] | None:
    """The names `forward` takes; None if it takes any."""
    try:
        parameters = signature_of(model).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def loss_function(loss_fn: typing.Callable | None, batch: typing.Any, target: typing.Any, explicit: bool) -> typing.Callable | None:
    """A function from the model's result to the loss."""
    if loss_fn is None:
        return None
    parameters = _required(loss_fn)
    if len(parameters) > 2:
        names = ", ".join(parameters)
        raise UsageError(f"loss_fn takes {len(parameters)} arguments ({names}); the audit gives it (output), (output, target) or (output, batch)")
    if len(parameters) < 2:
        return loss_fn if len(parameters) == 1 or target is None else lambda output: loss_fn(output, target)
    if not explicit and parameters[1] in _BATCHES:
        target = batch
    elif target is None:
        target = batch
        if isinstance(batch, Mapping):
            label = next((k for k in batch if k.lower() in ("labels", "label", "targets", "target", "y")), None)
            target = batch[label] if label is not None else batch
    return lambda output: loss_fn(output, target)


def _required(loss_fn: typing.Callable) -> list[str]:
    """Names of the arguments that it must be given in order."""
    try:
        parameters = inspect.signature(loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]


def autocast_here(call: Call) -> tuple[str, torch.dtype] | None:
    kind = next((leaf.tensor.device.type for leaf in call.leaves), "cpu")
    return (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None
