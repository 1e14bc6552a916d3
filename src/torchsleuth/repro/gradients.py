"""Reproductions where a gradient is missing, refused or asked of the wrong thing. Pure: evidence in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchsleuth.evidence import AbsentGradient, Evidence
from torchsleuth.repro.parts import identifier, tensor

Lines = list[str]


def candidates(rule: str, evidence: Evidence) -> Iterator[Lines]:
    maker = {
        "grad-is-none": _absent,
        "not-a-leaf": _no_leaf,
        "number-backward": _number,
        "out-argument": _given_out,
        "assigned-gradient": _assigned,
        "grad-input": _input,
        "inference-tensor": _inference,
    }.get(rule)
    if maker is not None:
        yield from maker(evidence)


# -- x.grad is None --------------------------------------------------------------------------------


def _absent(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.absent_gradient
    if found is None:
        return
    name = identifier(found.tensor.name or found.owner, "x")
    before, gradient = _history(found, name)
    for use in _uses(evidence.exception.message, found.use.source, gradient):
        yield [*before, f"{use}  # {gradient} is None"]


def _history(found: AbsentGradient, name: str) -> tuple[Lines, str]:
    """What leaves the gradient out for the same reason, and the expression that is None."""
    shape, dtype = found.tensor.shape, found.tensor.dtype
    made, other = tensor(shape, dtype, True), "other" if name != "other" else "w"
    made_other = f"{other} = {tensor(shape, dtype, True)}"
    trained = f"({name} * {other}).sum()"
    ways = {
        "constant": [f"{name} = {tensor(shape, dtype)}", made_other, f"{trained}.backward()"],
        "computed": [f"{name} = {made} * 2  # a result, no leaf", f"{name}.sum().backward()"],
        "cleared": [f"{name} = {made}", f"optimizer = torch.optim.SGD([{name}], lr=0.1)", f"{name}.sum().backward()", "optimizer.zero_grad()"],
        "before": [f"{name} = {made}"],
        "elsewhere": [f"{name} = {made}", f"torch.autograd.grad({name}.sum(), {name})"],
        "late": [f"{name} = {tensor(shape, dtype)}", made_other, f"result = {trained}", f"{name}.requires_grad_()  # too late", "result.backward()"],
        "cut": [f"{name} = {made}", made_other, f"({name}.detach() * {other}).sum().backward()"],
        "returned": [f"{name} = {made}", made_other, f"gradient, = torch.autograd.grad({other}.sum(), [{name}], allow_unused=True)"],
    }
    unused = [f"{name} = {made}", made_other, f"{other}.sum().backward()"]
    return ways.get(found.reason, unused), "gradient" if found.reason == "returned" else f"{name}.grad"


def _uses(message: str, source: str, gradient: str) -> Iterator[str]:
    """Expressions that fail over None as the message says."""
    attribute = re.search(r"'NoneType' object has no attribute '(\w+)'", message)
    operands = re.search(r"unsupported operand type\(s\) for (\S+?)=?: '(\w+)' and '(\w+)'", message)
    sign = re.search(r"bad operand type for unary (\S+): 'NoneType'", message)
    function = re.match(r"(\w+)\(\): argument '\w+' \(position 1\) must be Tensor, not NoneType", message)
    called = re.match(r"(torch(?:\.\w+)+)\(", source)
    if called:
        yield f"{called[1]}({gradient})"
    if attribute:
        yield f"{gradient}.{attribute[1]}()"
    if operands:
        number = {"int": "2", "float": "0.1"}
        first, second = (gradient if kind == "NoneType" else number.get(kind, "torch.ones(())") for kind in operands.groups()[1:])
        yield f"{first} {operands[1]} {second}"
    if sign:
        yield f"{sign[1]}{gradient}"
    if function:
        yield f"torch.{function[1]}({gradient})"
    if "not subscriptable" in message:
        yield f"{gradient}[0]"


# -- refused ---------------------------------------------------------------------------------------


def _no_leaf(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.refused_result
    if found is None:
        return
    name = identifier(found.tensor.name, "x")
    uses = {"optimize": [f"torch.optim.SGD([{name}], lr=0.1)"], "copy": ["import copy", "", f"copy.deepcopy({name})"], "flag": [f"{name}.requires_grad = False"]}
    yield [f"{name} = {tensor(found.tensor.shape, found.tensor.dtype, True)} * 2  # a result, no leaf", *uses[found.wanted]]


def _number(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.number_root
    kind = re.search(r"'([\w.]+)' object", evidence.exception.message)
    if found is None or kind is None:
        return
    value = {"float": "(w * 2).sum().item()", "int": "sum(term for term in [] if term is not None)", "bool": "bool((w * 2).sum() > 0)"}.get(
        kind[1], "(w * 2).detach().numpy()" + ("" if "array" in kind[1] else ".mean()")
    )
    yield ["w = torch.randn(3, requires_grad=True)", f"total = {value}", "total.backward()"]


def _given_out(evidence: Evidence) -> Iterator[Lines]:
    operation = evidence.operation
    name = re.match(r"(\w+)\(\)", evidence.exception.message)
    if operation is None or name is None:
        return
    for arguments in ("x, x", "x"):
        yield ["x = torch.randn(3, 3, requires_grad=True)", "result = torch.zeros(3, 3)", f"torch.{name[1]}({arguments}, out=result)"]


def _assigned(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.assigned_gradient
    if found is None or found.value is None:
        return
    name = identifier(found.tensor.name or found.owner, "w")
    yield [f"{name} = {tensor(found.tensor.shape, found.tensor.dtype, True)}", f"{name}.grad = {tensor(found.value.shape, found.value.dtype)}"]


def _input(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.grad_input
    if found is None:
        return
    name = identifier(found.tensor.name, "x")
    dtype = found.tensor.dtype
    other = "w" if name != "w" else "v"
    if "does not require grad" in evidence.exception.message:
        made = [f"{name} = {tensor(found.tensor.shape, dtype)}", f"{other} = {tensor(found.tensor.shape, dtype, found.root_has_history)}"]
        yield [*made, f"torch.autograd.grad(({name} * {other}).sum(), {name})"]
        return
    yield [f"{name} = {tensor(found.tensor.shape, dtype, True)}", f"{other} = {tensor(found.tensor.shape, dtype, True)}", f"torch.autograd.grad({other}.sum(), [{name}])"]


def _inference(evidence: Evidence) -> Iterator[Lines]:
    made = ["with torch.inference_mode():", "    features = torch.randn(3)"]
    if "Inplace update" in evidence.exception.message:
        yield [*made, "features += 1"]
    else:
        yield [*made, "w = torch.randn(3, requires_grad=True)", "result = w * features"]
