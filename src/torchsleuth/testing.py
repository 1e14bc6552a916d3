"""Assertions for test suites. Each imports what it needs when it is called, so that importing this is cheap."""

from __future__ import annotations

import typing


def assert_function_correct(function: type, *inputs: typing.Any, accept_surrogate: bool = False) -> None:
    """Fails with torchsleuth's report if the backward of a torch.autograd.Function is wrong.

    `inputs` are what `torchsleuth.check` takes: tensors and plain values, or shapes.
    """
    from torchsleuth.checker import check

    __tracebackhide__ = True
    report = check(function, *inputs, accept_surrogate=accept_surrogate)
    if not report.ok:
        raise AssertionError(f"{function.__name__} is not correct:\n{report}")
