"""Where the program entered the outermost module that was running, and what it gave it."""

from __future__ import annotations

import ast
import itertools
import typing

import torch

from torchsleuth import source
from torchsleuth.evidence_forward import Entered
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.failure import Failure


def entered(failure: Failure) -> Entered | None:
    """The user's outermost call of a module, where that gives it one tensor and nothing else."""
    for entry, inside in itertools.pairwise(failure.entries):
        scope = locals_of(inside.frame) if entry.origin is Origin.USER and inside.origin is Origin.TORCH else {}
        if not isinstance(scope.get("self"), torch.nn.Module) or not inside.code.co_name.endswith("call_impl"):
            continue
        call, given = entry.node, scope.get("args", ())
        plain = isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred)
        if not plain or len(given) != 1 or not isinstance(given[0], torch.Tensor):
            return None
        place = source.place_of_node(entry.code, call.args[0], Known.OBSERVED)
        return Entered(place, tuple(given[0].shape), scope["self"].training) if place is not None else None
    return None
