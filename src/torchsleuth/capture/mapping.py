"""The `vmap` around a failure: the program's call that ran it, where it was made, and which dimensions it was told to map."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Failure
from torchsleuth.evidence_forward import Mapping
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of


def mapping(failure: Failure, definitions: Definitions) -> Mapping | None:
    """The innermost one that was running; None where there is none."""
    torchs = [entry for entry in failure.entries if entry.origin is Origin.TORCH and entry.code.co_name in ("vmap_impl", "_flat_vmap")]
    entry = next((e for e in reversed(torchs) if e.code.co_name == "vmap_impl"), torchs[-1] if torchs else None)
    caller = next((e for e in reversed(failure.entries[: entry.position]) if e.origin.is_program), None) if entry is not None else None
    place = caller.place() if caller is not None else None
    if entry is None or caller is None or place is None:
        return None
    values = locals_of(entry.frame)
    dims, given = values.get("in_dims", values), values.get("args")
    within = failure.program.position > entry.position or failure.operation is not None
    made = definitions.made(caller, caller.node.func) if isinstance(caller.node, ast.Call) else None
    return Mapping(place, made, within, _written(dims), len(given) if isinstance(given, tuple) else 0, _fitting(dims, given))


def _written(dims: object) -> str:
    plain = dims is None or type(dims) is int or type(dims) is tuple and all(item is None or type(item) is int for item in dims)
    return repr(dims) if plain else ""


def _fitting(dims: object, given: object) -> str:
    """`in_dims` for just these arguments, where no tensor is left without one: what is no tensor has no dimension to map."""
    if not _written(dims) or not isinstance(given, tuple) or not given or any(not _is_plain(value) for value in given):
        return ""
    known: typing.Any = dims if isinstance(dims, tuple) else (dims,) * len(given)
    found = []
    for position, value in enumerate(given):
        if not isinstance(value, torch.Tensor):
            found.append(None)
        elif position < len(known) and (known[position] is None or known[position] < value.dim()):
            found.append(known[position])
        else:
            return ""
    return repr(tuple(found)) if any(item is not None for item in found) else ""


def _is_plain(value: object) -> bool:
    """A tensor, or a number, text or None; what holds several things may hold tensors."""
    return value is None or isinstance(value, (torch.Tensor, bool, int, float, str))
