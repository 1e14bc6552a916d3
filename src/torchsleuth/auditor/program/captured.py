"""`Captured`: one module call of a running program, with a copy of its inputs for the experiments that come later."""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.preflight import all_alike
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.laboratory.runner import BATCH_NORMS
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.trace import Op, Trace

COPIED_BYTES = 1 << 30  # inputs larger than that are not copied; no experiment is made then
MOST_AGAIN = 3  # calls of one model kept beside its first, until the loss says which counts
_DROPPING = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass
class Captured:
    """An outermost module call of the step."""

    model: nn.Module
    live: Call
    site: Site | None
    autocast: typing.Any
    copy: Call | None = None
    output: typing.Any = None
    training: bool = True
    around: Site | None = None  # of a call without gradients: what stands in the block that says so
    inside: slice = field(default_factory=lambda: slice(0, 0))  # the calls between its start and its return
    dependent: list[str] = field(default_factory=list)  # what in it behaves differently in training
    versions: dict[str, int] = field(default_factory=dict)  # of its parameters without gradient, after the first backward pass: a step writes into them, and that counts
    begun: dict[str, torch.Tensor] = field(default_factory=dict)  # copies of parameters whose gradient was zero in a model of which a layer began at zero
    calls: int = 1
    again: list[Captured] = field(default_factory=list)  # the latest of further calls of the same model before the backward pass
    begins: bool = False  # the first of several calls behind the loss, of which others tell the samples apart: where a walk through time starts

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if not is_lazy(p))


def note_again(one: Captured, call: Captured) -> None:
    """One more call of a captured model. Which of them the step is about shows when the loss is known."""
    one.again = [*one.again[1 - MOST_AGAIN :], call]
    one.calls += 1


def behind_the_loss(one: Captured, trace: Trace, before: set[int]) -> Captured:
    """Of the calls of this model, the first that the loss was computed from: others look at a shape, or seek an adversarial input.
    One that is given different numbers says more than one that begins an episode, say, with zeros.

    `before`: the keys of all that the loss was computed from.
    """
    behind = [call for call in (one, *one.again) if any(trace.known_key(tensor) in before for _, tensor in output_leaves(call.output))]
    if not behind:
        return one
    at = next((at for at, call in enumerate(behind) if len(behind) == 1 or _varied(call)), 0)
    behind[at].begins = any(call.copy is not None and not all_alike(call.copy) for call in behind[at + 1 :])
    return behind[at]


def _varied(one: Captured) -> bool:
    """Not the first state of a simulation, which is zero everywhere: it tells little about the model."""
    given = [leaf.tensor for leaf in (one.copy or one.live).leaves if leaf.tensor.numel() > 1]
    return not given or any(bool((tensor != tensor.flatten()[0]).any()) for tensor in given)


def copied(call: Call) -> Call | None:
    if sum(leaf.tensor.numel() * leaf.tensor.element_size() for leaf in call.leaves) > COPIED_BYTES:
        return None
    with torch.inference_mode(False), torch.no_grad():
        args, kwargs = call.replaced({leaf.path: leaf.tensor.detach().clone() for leaf in call.leaves})
    return Call(call.model, args, kwargs)


def keywords() -> dict[str, typing.Any]:
    """The keyword arguments of the module call that a hook was called from; global hooks are not given them."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("_call_impl", "inner"):
        frame = frame.f_back
    found = frame.f_locals.get("kwargs") if frame is not None else None
    return dict(found) if isinstance(found, dict) else {}


def called_name(site: Site | None) -> str:
    """What the program calls the module: `head` in `head(x)`. Empty for `self(x)`: a module that calls itself."""
    try:
        node = ast.parse(site.source.strip(), mode="eval").body if site is not None else None
    except SyntaxError:
        return ""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) else ""
    return "" if name in ("self", "super().forward", "super().__call__") else name


def renamed(fields: dict[str, typing.Any], name: str) -> dict[str, typing.Any]:
    """The facts about weights under the name that the program calls the module by: `gen.net.0.weight`."""
    found = dict(fields)
    for field_name in ("weights", "cuts", "undetached", "unused", "vanished") if name else ():
        facts = fields.get(field_name, ())
        if field_name == "weights":
            found[field_name] = tuple(dataclasses.replace(fact, name=f"{name}.{fact.name}") for fact in facts)
        else:
            found[field_name] = tuple(dataclasses.replace(fact, weights=tuple(f"{name}.{w}" for w in fact.weights)) for fact in facts)
    return found


def path_of(model: nn.Module, module: nn.Module) -> str:
    """The module's path below the model, with its dot; empty for the model itself."""
    path = next((name for name, m in model.named_modules() if m is module), "")
    return f"{path}." if path else ""


def mode_dependent(model: nn.Module, ops: Iterable[Op] = ()) -> list[str]:
    """Names of the layers that behave differently in training; or else of the functions that are told the mode in these calls."""
    layers = [
        name or type(m).__name__ for name, m in model.named_modules() if (isinstance(m, _DROPPING) and m.p > 0) or isinstance(m, BATCH_NORMS)
    ]
    return layers or list(dict.fromkeys(f"F.{op.name}" for op in ops if _told_the_mode(op)))


def _told_the_mode(op: Op) -> bool:
    """`F.dropout(x, p, training=self.training)`, or attention with a `dropout_p` that is not zero (now)."""
    if op.name == "scaled_dot_product_attention":
        return op.argument(4, "dropout_p", 0.0) != 0.0
    if op.name.rstrip("_") not in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"):
        return False
    return op.argument(1, "p", 0.5) != 0 and op.argument(2, "training") is not None
