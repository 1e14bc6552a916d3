"""Tensors on two devices in one operation."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import expr, failed, fully, line_of, made_words, seen, shape


class DeviceMismatch(CrashRule):
    """An operation gets tensors that lie on different devices.

    What happened
    -------------
    All tensors of an operation must be on one device (single numbers on the CPU excepted). One is elsewhere.

    Why
    ---
    Typical: the model was moved to the GPU and the batch was not; a mask, a position or a state made inside `forward`
    without `device=x.device`; a tensor kept as a plain attribute, which `model.to()` does not move.

    Example
    -------
    This raises an error about devices; the device "meta" stands for a GPU here:

        import torch

        x = torch.zeros(3, device="meta")
        x + torch.ones(3)

    Fix
    ---
    Make new tensors where the others are (`torch.arange(n, device=x.device)`), move batches (`batch.to(device)`), and
    register constants of a module with `register_buffer`, so that they move with it.

    Common false explanations
    -------------------------
    "`x.to(device)` moves x." It returns a moved copy; `x` itself stays. This prints cpu and meta:

        import torch

        x = torch.zeros(3)
        y = x.to("meta")
        print(x.device, y.device)
    """

    name = "device-mismatch"
    messages = (
        r"Expected all tensors to be on the same device",
        r"is not on the expected device",
        r"indices should be either on cpu or on the same device",
        r"is on (CPU|cpu), but expected",
        r"Input type \((torch\.)?(cuda\.|mps)?\S*\) and weight type \(torch\.cuda|Input type \(torch\.cuda.*\) and weight type",
        r"but (found at least two devices|got \w+ is on)",
        r"Attempting to copy from device",
        r"Unhandled FakeTensor Device Propagation",
        r"expected device \S+ but got device",
        r"on the same device",
    )
    needs = ("operation",)
    priority = 25

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        devices = Counter(operand.tensor.device for operand in operation.operands if operand.shape or operand.tensor.device != "cpu")
        if len(devices) < 2:
            return report(self.name, operation, title=f"Tensors on different devices meet: {re.sub(r'^.*?(found|got) ', '', message)[:80]}", label="tensors on two devices",
                          why=f"torch says: {message}")  # fmt: skip
        unowned = next((operand for operand in operation.operands if operand.kept is not None and operand.kept.operation in ("layers", "new layer")), None)
        if unowned is not None:
            return _layers(self.name, operation, unowned)
        odd, usual = _odd(operation.operands, devices)
        name = expr(odd, "x")
        facts = [seen(f"{fully(operand)} {shape(operand.shape)}, {operand.tensor.dtype}, is on {operand.tensor.device}{_from(operand, operation)}.") for operand in operation.operands[:6]]
        fixes = [f"Make it on {usual} (`device=...` in the call that makes it), or `{name} = {name}.to({usual!r})`."]
        if odd.tensor.kind == "parameter":
            fixes = [f"Move the model: `model.to({usual!r})`."]
        creates = [_brought(odd)]
        plain = next((operand for operand in operation.operands if operand.kept is not None and operand.tensor.device != "meta"), None)
        if plain is not None:
            fixes.insert(0, f"Where it is made: `self.register_buffer(\"{_attribute(plain)}\", ...)`, and `.to()` moves it with the module.")
        empty = next((operand for operand in operation.operands if operand.tensor.device == "meta"), None)
        if empty is not None:  # mostly left there by accident: nothing is computed on meta
            fixes = fixes[: plain is not None] + [f"To compute, {empty.called} needs memory and values: make it outside of `torch.device('meta')`, or `module.to_empty(device={usual!r})` "
                     "and then load or initialise it. To compute shapes only, make all tensors on meta."]  # fmt: skip
            other = next(operand for operand in operation.operands if operand.tensor.device == usual)
            creates.append(_brought(other))
            facts.append(seen("A tensor on meta has a shape and no values, so `.to()` cannot bring it to another device."))
        why = f"An operation runs on one device; {odd.called} is the odd one out."
        rest = f"the {'other' if len(operation.operands) == 2 else 'others'} on {usual}"
        if any(operand is not odd and operand.tensor.device != usual for operand in operation.operands):
            rest = f"{next(operand for operand in operation.operands if operand.tensor.device == usual).called} on {usual}"
        return report(
            self.name, operation, title=f"{odd.called} is on {odd.tensor.device}, {rest}", label=f"on {odd.tensor.device}",
            lead=odd if odd.place is not None else None, why=why,
            creates=creates, facts=facts, fixes=fixes, shown=0,
        )  # fmt: skip


def _layers(rule: str, operation: FailedOperation, unowned: Operand) -> Diagnosis:
    """Parameters of a layer in a plain list or dictionary, which `.to()` of the model does not find."""
    other = next(operand for operand in operation.operands if operand.tensor.device != unowned.tensor.device)
    facts = [seen(f"{fully(operand)} {shape(operand.shape)}, {operand.tensor.dtype}, is on {operand.tensor.device}{_from(operand, operation)}.") for operand in operation.operands[:6]]
    title = f"{unowned.called} is on {unowned.tensor.device}, {other.called} on {other.tensor.device}: the model does not own that layer"
    if unowned.kept is not None and unowned.kept.operation == "new layer":
        return report(
            rule, operation, title=title, label=f"this layer is on {unowned.tensor.device}", creates=[(unowned.kept, "made anew in every forward pass: nobody moves it")],
            why="A layer that is made in `forward` is new in every call: `.to()` of the model was over before it, no optimizer has its parameters, and what it learns is thrown away.",
            facts=facts, fixes=["Make it once, in `__init__`, as an attribute of the module."], shown=0,
        )  # fmt: skip
    made = unowned.kept.place.source if unowned.kept is not None else ""
    container = "nn.ModuleDict" if made.lstrip().startswith(("{", "dict(")) else "nn.ModuleList"
    return report(
        rule, operation, title=title,
        label=f"this layer is on {unowned.tensor.device}", creates=[(unowned.kept, "the layers are kept here, in a plain container that `.to()` does not look into")],
        why="A module finds the layers that are its attributes, or in an `nn.ModuleList` or `nn.ModuleDict`. Those in a plain list or dict it does not move, "
        "does not give to the optimizer (`parameters()`) and does not save.",
        facts=facts, fixes=[f"Keep them in `{container}(...)`."], shown=0,
    )  # fmt: skip


def _brought(operand: Operand) -> tuple[Made | None, str]:
    """What decided on which device it is."""
    if operand.kept is not None:
        chosen = operand.device_made.given if operand.device_made is not None else None
        kept = replace(operand.kept, given=chosen) if chosen is not None and chosen.operation == "with" and operand.kept.given is None else operand.kept
        return kept, "kept as a plain attribute: `.to()` of the module leaves it where it is"
    return operand.device_made, f"{operand.called} is made on {operand.tensor.device} here"


def _attribute(operand: Operand) -> str:
    """`table` of `self.pe.table[:n]`."""
    return re.split(r"[\[(]", operand.source, maxsplit=1)[0].rpartition(".")[2]


def _odd(operands: tuple[Operand, ...], devices: Counter) -> tuple[Operand, str]:
    """The one to move: the tensor that is not where the parameters are; else the one left on the CPU; else the rarer."""
    empty = next((o for o in operands if o.tensor.device == "meta"), None)
    if empty is not None:
        return empty, next(device for device in devices if device != "meta")
    parameters = [o.tensor.device for o in operands if o.tensor.kind in ("parameter", "buffer")]
    usual = parameters[0] if parameters else None
    if usual is None:
        away = [device for device in devices if device != "cpu"]
        usual = away[0] if "cpu" in devices and away else devices.most_common(1)[0][0]
    odd = next((o for o in operands if o.tensor.device != usual and (o.shape or o.tensor.device != "cpu")), operands[0])
    return odd, usual


def _from(operand: Operand, operation: FailedOperation) -> str:
    words = made_words(operand.device_made, operation)
    return f", from {words}" if words else ""
