"""Assertions for test suites. Each imports what it needs when it is called, so that importing this is cheap."""

from __future__ import annotations

import typing


def assert_function_correct(function: type, *inputs: typing.Any, accept_surrogate: bool = False, strict: bool = False) -> None:
    """Fails with torchsleuth's report if the backward of a torch.autograd.Function is wrong.

    `inputs` are what `torchsleuth.check` takes: tensors and plain values, or shapes. `strict` fails for a wrong second derivative
    too, whether or not anything takes one.
    """
    from torchsleuth.checker import check

    __tracebackhide__ = True
    report = check(function, *inputs, accept_surrogate=accept_surrogate, strict=strict)
    if not report.ok:
        raise AssertionError(f"{function.__name__} is not correct:\n{report}")


def assert_no_findings(model: typing.Any, batch: typing.Any, **options: typing.Any) -> None:
    """Fails with torchsleuth's report if an audit of `model` on `batch` finds anything.

    `options` are those of `torchsleuth.audit`: `loss_fn`, `target`, `optimizer`, `overfit`, `budget_s`.
    """
    __tracebackhide__ = True
    _assert_clean(model, batch, None, options)


def assert_no_padding_leak(model: typing.Any, batch: typing.Any, **options: typing.Any) -> None:
    """Fails if the content or the amount of padding changes the outputs at real positions.

    Also fails if `batch` has no padding that torchsleuth can see: then nothing was tested.
    """
    from torchsleuth.auditor.inputs.calling import padded_inputs

    __tracebackhide__ = True
    if not padded_inputs(model, batch):
        raise AssertionError("nothing was tested: no padding was recognised in this batch (give a mask, lengths, or a model with a padding_idx)")
    _assert_clean(model, batch, {"padding-leak"}, options)


def assert_causal(model: typing.Any, batch: typing.Any, **options: typing.Any) -> None:
    """Fails if changing a later token moves an output at an earlier position."""
    __tracebackhide__ = True
    _assert_clean(model, batch, {"causal-leak"}, {**options, "causal": True})


def assert_no_batch_mixing(model: typing.Any, batch: typing.Any, **options: typing.Any) -> None:
    """Fails if changing one sample of the batch moves the outputs of others."""
    __tracebackhide__ = True
    _assert_clean(model, batch, {"batch-mixing"}, options)


def assert_gradients_flow(model: typing.Any, batch: typing.Any, **options: typing.Any) -> None:
    """Fails if parameters get no gradient, a zero gradient or NaN, or are not in the optimizer. Needs a loss."""
    __tracebackhide__ = True
    rules = {"gradient-cut", "unused-parameters", "zero-gradient", "nan-gradient", "optimizer-parameters"}
    _assert_clean(model, batch, rules, options)


def _assert_clean(model: typing.Any, batch: typing.Any, rules: set[str] | None, options: dict[str, typing.Any]) -> None:
    import dataclasses

    from torchsleuth.doors import audit

    __tracebackhide__ = True
    report = audit(model, batch, **options)
    if report.exception is not None:
        raise AssertionError(f"the model could not be run: {report.exception.type}: {report.exception.message}")
    skipped = [note for note in report.notes if "were not made" in note or "could not be tested" in note or "not tested" in note]
    found = tuple(d for d in report.diagnoses if rules is None or d.rule in rules)
    if not found:
        if rules is not None and skipped:
            raise AssertionError("not everything was tested: " + "; ".join(skipped))
        return
    said = dataclasses.replace(report, diagnoses=found, notes=())
    raise AssertionError(f"torchsleuth found {len(found)} problem{'s' * (len(found) > 1)}:\n{said}")
