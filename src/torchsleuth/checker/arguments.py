"""The inputs of an experiment: what the user gave, made into float64 tensors of our own.

A tensor is taken as it is; where no tensor is given, every tuple of integers is a shape. Nothing the
user passed is written to: all experiments work on detached copies.
"""

from __future__ import annotations

import functools
import typing

import torch

from torchsleuth.checker.guard import modules_among
from torchsleuth.checker.subject import Subject
from torchsleuth.checker.trial import TensorFact
from torchsleuth.errors import UsageError

if typing.TYPE_CHECKING:
    from torchsleuth.checker.variants import Noise


class Arguments(typing.NamedTuple):
    """What `forward` is called with, and which of it is differentiated."""

    values: tuple  # tensors are our own
    checked: tuple[int, ...]  # positions whose gradient is compared
    names: tuple[str, ...]
    facts: tuple[TensorFact, ...]
    dtypes: tuple[torch.dtype | None, ...]  # as given, per position
    required: bool  # the user said which inputs require grad
    remarks: tuple[str, ...]
    needs: tuple[bool, ...]  # `checked`, as ctx.needs_input_grad has it

    def with_values(self, values: typing.Iterable) -> Arguments:
        return tuple.__new__(Arguments, (tuple(values), *self[1:]))

    def shapes(self) -> str:
        """`x [4, 5], w [5]`: the shapes of the tensors."""
        return ", ".join(
            f"{name} {list(value.shape)}"
            for name, value in zip(self.names, self.values, strict=True)
            if isinstance(value, torch.Tensor)
        )


def arguments_for(subject: Subject, given: tuple, noise: Noise, made: bool = False) -> Arguments:
    """The user's inputs as experiments need them; `UsageError` where they make no sense.

    `made`: the tensors are ours, not the user's, so that they require no grad says nothing.
    """
    if not given:
        raise UsageError(f"{subject.name}: no inputs to check it with; pass tensors, or shapes such as (1, 32, 100)")
    by_shape = True
    for value in given:
        if isinstance(value, torch.Tensor):
            by_shape = False
            break
    if by_shape:
        given = tuple(torch.randn(value, generator=noise.generator, dtype=torch.float64, device="cpu") if _is_shape(value) else value for value in given)
    values = subject.bound(given)
    names = subject.names(len(values))
    if handed := handed_twice(values):
        raise UsageError(f"{subject.name}: {twice_refused(names[handed[0]])}")
    floats = []
    for k, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            _refuse_unusual(subject, names[k], value)
            if value.is_floating_point():
                floats.append(k)
    if not floats:
        seen = ", ".join(f"{n} is {_kind(v)}" for n, v in zip(names, values, strict=True))
        raise UsageError(f"{subject.name}: no input is a floating-point tensor, so there is no gradient to check ({seen})")
    required = [k for k in floats if values[k].requires_grad]
    checked = required or floats
    remarks = []
    if not required and not by_shape and not made:
        remarks.append(f"no input requires grad: checked as if {_listed(names, floats)} did")
    elif made and (left_out := [k for k in floats if k not in checked]):
        remarks.append(f"{_listed(names, left_out)}: backward returns None, and nothing says that this is to be trained: taken as constant")
    elif left_out := [k for k in floats if k not in checked]:
        ending = "s no grad: its gradient was" if len(left_out) == 1 else " no grad: their gradients were"
        remarks.append(f"{_listed(names, left_out)} require{ending} not checked")
    if empty := [k for k in checked if not values[k].numel()]:
        remarks.append(f"{_listed(names, empty)}: no elements, so there was nothing to compare")
    required = () if made else required
    facts = tuple([_fact(k, names[k], v, k in checked, k in required) for k, v in enumerate(values)])
    dtypes = tuple([v.dtype if isinstance(v, torch.Tensor) else None for v in values])
    needs = tuple([k in checked for k in range(len(values))])
    return Arguments(tuple(map(_own, values)), tuple(checked), names, facts, dtypes, bool(required), tuple(remarks), needs)


def handed_twice(values: typing.Sequence) -> list[int]:
    """The positions of parameters that a module (or function) among the inputs holds, too.

    Checkpoints and adjoint solvers take them only so that autograd asks for their gradient: forward reads the module's own,
    whatever tensor it is given in their place, so no experiment can change one.
    """
    tensors = [k for k, value in enumerate(values) if isinstance(value, torch.Tensor)]
    if len(tensors) == len(values):
        return []
    held = {id(p) for module in modules_among(v for v in values if not isinstance(v, torch.Tensor)) for p in module.parameters()}
    return [k for k in tensors if id(values[k]) in held]


def twice_refused(name: str) -> str:
    return f"{name} is a parameter of a module that forward is given, too, and computes with: its gradient cannot be checked by giving it another one"


def in_dtypes(arguments: Arguments, dtypes: typing.Sequence[torch.dtype | None]) -> Arguments:
    """The same inputs in other floating-point types."""
    return arguments.with_values(
        value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() and dtype is not None else value
        for value, dtype in zip(arguments.values, dtypes, strict=True)
    )


def _own(value: typing.Any) -> typing.Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_floating_point() and value.dtype is not torch.float64:
        return value.to(torch.float64, memory_format=torch.contiguous_format)
    return value.clone(memory_format=torch.contiguous_format) if value.is_floating_point() else value.clone()


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, torch.Size)) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)


_USUAL = frozenset((torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool))


def _refuse_unusual(subject: Subject, name: str, value: torch.Tensor) -> None:
    if value.layout is torch.strided and value.dtype in _USUAL and (value.is_cpu or value.is_cuda):
        return
    if value.is_complex():
        raise UsageError(
            f"{subject.name}: {name} is {_kind(value)}; complex inputs are not checked. "
            "Check the real and imaginary parts as two real inputs, or use torch.autograd.gradcheck"
        )
    if value.layout is not torch.strided:
        raise UsageError(f"{subject.name}: {name} has layout {value.layout}; only dense tensors are checked")
    if value.is_quantized or value.device.type == "meta":
        raise UsageError(f"{subject.name}: {name} is {_kind(value)} on {value.device}; it has no values to check with")


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {dtype_name(value.dtype)}{list(value.shape)}"
    return f"{value!r}" if isinstance(value, (int, float, str, bool, type(None), tuple)) else f"a {type(value).__name__}"


@functools.cache
def dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: typing.Sequence[str], positions: typing.Sequence[int]) -> str:
    return ", ".join(names[k] for k in positions)


def _fact(position: int, name: str, value: typing.Any, checked: bool, required: bool) -> TensorFact:
    if isinstance(value, torch.Tensor):
        return tensor_fact(position, name, value.dtype, value.shape, value.device, checked, required)
    plain = isinstance(value, (bool, int, float, str, type(None)))
    return TensorFact(position, name, False, value=repr(value) if plain else type(value).__name__)


@functools.lru_cache(maxsize=1024)
def tensor_fact(
    position: int, name: str, dtype: torch.dtype, shape: torch.Size, device: torch.device, checked: bool = False, required: bool = False
) -> TensorFact:
    return TensorFact(position, name, True, dtype_name(dtype), tuple(shape), str(device), checked, required)
