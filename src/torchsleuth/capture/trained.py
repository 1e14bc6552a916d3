"""What is trained: the parameters that the optimizers in sight hold."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def trained_parameters(crash: Crash) -> set[int]:
    """By id."""
    return {id(p) for _, optimizer in crash.names.optimizers for group in optimizer.param_groups for p in group["params"]}
