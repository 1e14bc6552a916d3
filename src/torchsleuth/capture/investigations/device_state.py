"""Asks the GPU whether it still answers, after an error of one of its libraries."""

from __future__ import annotations

import typing

import torch

from torchsleuth.evidence_device import DeviceState

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def investigate(crash: Crash) -> DeviceState | None:
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    try:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
    except Exception:
        return DeviceState(False)
    return DeviceState(True, free, total)
