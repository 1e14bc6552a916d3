"""Plain tensors that ask for gradients and lie in a module as attributes: not parameters, in no optimizer, and written by nobody."""

from __future__ import annotations

import typing
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from torchsleuth.auditor.observation_training import Unregistered
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.owners import built, class_origin
from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.origin import Origin

_LAYERS = {"linear", "conv1d", "conv2d", "conv3d"}
_JOINING = {"cat", "stack", "concat", "hstack"}


@dataclass
class LooseLeaf:
    """`fact`, as long as the program does nothing with the tensor's gradient itself."""

    fact: Unregistered
    module: weakref.ref
    name: str
    tensor: weakref.ref
    version: int

    def stays(self, held: typing.Container[int]) -> bool:
        """The same tensor is there, nobody has written into it, and no optimizer holds it."""
        module, tensor = self.module(), self.tensor()
        return module is not None and tensor is not None and vars(module).get(self.name) is tensor and tensor._version == self.version and id(tensor) not in held


def loose_leaves(modules: Iterable[nn.Module], trace: Trace, loss: int | None, known: typing.Container[int]) -> list[LooseLeaf]:
    """Such tensors that the loss was computed from, but for `known` ones (an optimizer's, inputs of the model). Data that derivatives are taken of (`autograd.grad(u, self.points)`), or that layers are given, is not meant."""
    if loss is None:
        return []
    before = trace.ancestors({loss})
    found: dict[int, LooseLeaf] = {}
    for module in modules:
        for name, value in vars(module).items():
            if type(value) is not torch.Tensor or not value.requires_grad or not value.is_leaf or id(value) in known or id(value) in found:
                continue
            key = trace.known_key(value)
            if key is None or key not in before or class_origin(type(module)) is not Origin.USER:
                continue
            uses = [op for op in trace.ops if not op.writes and any(seen.key == key for seen in op.ins)]
            site = trace.site(uses[0]) if uses and origin_of_place(uses[0]) is Origin.USER else None
            if site is not None and not any(_as_data(trace, op, key) for op in uses):
                fact = Unregistered((tuple(value.shape),), site, name, built(module, name), "tensor")
                found[id(value)] = LooseLeaf(fact, weakref.ref(module), name, weakref.ref(value), value._version)
    return list(found.values())


def _as_data(trace: Trace, op: Op, key: int) -> bool:
    """A derivative is taken with respect to it, or a layer is applied to it, alone or laid beside others."""
    if op.name == "grad" or (op.name in _LAYERS and op.ins[0].key == key):
        return True
    return op.name in _JOINING and any(one.name in _LAYERS and one.ins[0] in op.outs for one in trace.ops if one.ins)
