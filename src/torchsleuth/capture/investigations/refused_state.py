"""A checkpoint that `load_state_dict` refused: which keys and shapes, and where the layers in question were made."""

from __future__ import annotations

import re
import typing

import torch

from torchsleuth.capture.failure import Failure
from torchsleuth.capture.makers import module_made
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.trails import mark_of
from torchsleuth.evidence_forward import KeyMismatch, Made, RefusedState

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST = 64
_SIZES = re.compile(r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
                    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)")  # fmt: skip


def investigate(crash: Crash) -> RefusedState | None:
    failure = Failure.of(crash)
    place = failure.place() if failure is not None else None
    module = crash.local("load_state_dict", "self", "module.py")
    given = crash.local("load_state_dict", "state_dict", "module.py")
    if place is None or not isinstance(module, torch.nn.Module) or not isinstance(given, dict):
        return None
    origins = Origins(failure)
    parameters = dict(module.named_parameters()) | dict(module.named_buffers())
    mismatches = [
        KeyMismatch(
            key,
            _sizes(saved),
            _sizes(model),
            _made(failure, origins, module, key, parameters.get(key), _differing(_sizes(saved), _sizes(model))),
            _saved_made(origins, given.get(key), _sizes(model)),
        )
        for key, saved, model in _SIZES.findall(crash.message)[:_MOST]
    ]
    missing, unexpected = _keys(crash.message, "Missing"), _keys(crash.message, "Unexpected")
    name = next((name for name, item in crash.names.modules if item is module), "")
    return RefusedState(
        place,
        name,
        type(module).__name__,
        tuple(mismatches),
        missing,
        unexpected,
        len(given),
        _nested(given, missing),
        module_made(failure, origins.definitions, module) if not mismatches else None,
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size.strip())


def _keys(message: str, kind: str) -> tuple[str, ...]:
    found = re.search(rf'{kind} key\(s\) in state_dict: ((?:"[^"]*"(?:, )?)+)', message)
    return tuple(re.findall(r'"([^"]*)"', found[1])) if found else ()


def _nested(given: dict, missing: tuple[str, ...]) -> str:
    """`checkpoint["model"]`: an entry that is itself a dictionary with what is missing."""
    for key, value in given.items():
        if isinstance(key, str) and isinstance(value, dict) and missing and set(missing) <= set(value):
            return key
    return ""


def _differing(saved: tuple[int, ...], model: tuple[int, ...]) -> int | None:
    return next((other for one, other in zip(saved, model, strict=False) if one != other), None)


def _saved_made(origins: Origins, entry: typing.Any, model: tuple[int, ...]) -> Made | None:
    """Seen by the log only: a checkpoint read from a file was made by another run."""
    mark = mark_of(entry) if isinstance(entry, torch.Tensor) and origins.log_reaches else None
    if mark is None or len(mark.shape) != len(model):
        return origins.formed(mark) if mark is not None else None
    return origins.size(mark, next(axis for axis, size in enumerate(mark.shape) if size != model[axis]))


def _made(failure: Failure, origins: Origins, module: torch.nn.Module, key: str, tensor: torch.Tensor | None, size: int | None) -> Made | None:
    """The constructor call of the layer: seen by the log, or by the syntax of the class that holds it."""
    mark = mark_of(tensor) if tensor is not None else None
    made = origins.of_parameter(mark, size) if mark is not None and origins.log_reaches else None
    if made is None:
        owner = key.rpartition(".")[0]
        layer = module.get_submodule(owner) if owner else module
        made = module_made(failure, origins.definitions, layer)
    return made
