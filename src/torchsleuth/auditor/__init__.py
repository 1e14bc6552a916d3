"""The audit: silent bugs of models and training steps, found by experiment. `audit` is the way in."""

from __future__ import annotations

import typing


def audit(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    """Audit `model` on one `batch`; see `torchsleuth.auditor.session.audit`, which this loads on first use."""
    from torchsleuth.auditor.session import audit as real

    return real(*args, **kwargs)
