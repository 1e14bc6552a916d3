"""The Function under test: its names, its style, and calling its parts with a context of our own.

Most experiments call `forward` and `backward` directly with `Context`, a stand-in for autograd's
`ctx` written in Python: it costs a third of a pass through the engine, keeps the gradients as
`backward` returned them (the engine sums, casts and drops), and records what the code asked of it.
"""

from __future__ import annotations

import functools
import inspect
import typing

import torch
from torch.autograd.function import Function, FunctionCtx

from torchsleuth.checker.reading import returned_count
from torchsleuth.checker.source import method_of
from torchsleuth.errors import UsageError


class Context(FunctionCtx):
    """What `forward` and `backward` see as `ctx`."""

    def __init__(self, needs: tuple[bool, ...]):
        self.__dict__.update(_needs=needs, _asked=False, to_save=(), materialize_grads=True,
                             dirty_tensors=(), non_differentiable=())  # fmt: skip

    @property
    def saved_tensors(self) -> tuple:
        return tuple(self.to_save)

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        self.__dict__["_asked"] = True
        return self._needs

    def maybe_clear_saved_tensors(self) -> None:
        pass


OWN_ATTRIBUTES = frozenset(
    ("_needs", "_asked", "to_save", "materialize_grads", "dirty_tensors", "non_differentiable", "saved_for_forward",
     "_dtype", "_fwd_used_autocast")
)  # fmt: skip


class Run(typing.NamedTuple):
    """One call of `forward`: the context it filled, its outputs as a tuple, and what it really returned."""

    context: Context
    outputs: tuple
    returned: typing.Any

    def carries_gradient(self, out: object) -> bool:
        """Whether a gradient comes back through an output: floating-point, and not marked as without one."""
        marked = () if self.context is None else self.context.non_differentiable or ()
        return isinstance(out, torch.Tensor) and out.is_floating_point() and not any(out is other for other in marked)


class Subject:
    """A Function class seen from outside."""

    def __init__(self, function: type):
        function = function_class(function)
        self.function = function
        self.name = function.__name__
        self.separate = function.setup_context is not Function.setup_context
        self.backward_name = "vjp" if function.vjp is not Function.vjp else "backward"
        if function.forward is Function.forward:
            raise UsageError(f"{self.name} defines no forward")
        self.has_backward = getattr(function, self.backward_name) is not Function.backward
        self.boxed = bool(getattr(function, "boxed_grads_call", False))
        self.backward_code = _plain(getattr(function, self.backward_name))
        self.forward_code = _plain(function.forward)
        self.method = getattr(function, self.backward_name)
        self.evaluations = 0

    @functools.cached_property
    def signature(self) -> inspect.Signature | None:
        try:
            whole = inspect.signature(self.function.forward)
        except (ValueError, TypeError):
            return None
        parameters = list(whole.parameters.values())
        if not self.separate and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            parameters = parameters[1:]
        return whole.replace(parameters=parameters)

    def bound(self, arguments: tuple) -> tuple:
        """The arguments with defaults filled in, as `apply` would pass them."""
        code = getattr(self.function.forward, "__code__", None)
        if code is not None and code.co_argcount == len(arguments) + (not self.separate) and not code.co_flags & 0x0C:
            return arguments  # every parameter is given, and there is no *args: nothing to bind
        if self.signature is None:
            return arguments
        try:
            found = self.signature.bind(*arguments)
        except TypeError as error:
            raise UsageError(f"{self.name}.forward cannot be called with {len(arguments)} inputs: {error}") from None
        if self.separate or self.has_place_for_all:
            found.apply_defaults()
        return found.args

    @functools.cached_property
    def has_place_for_all(self) -> bool:
        """Whether backward returns something for every parameter of forward, those with a default too: then all may be passed."""
        method = method_of(self.backward_code, "")
        parameters = self.signature.parameters.values()
        if method is None or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
            return False
        return returned_count(method) == len(parameters)

    def names(self, count: int) -> tuple[str, ...]:
        """A name for every positional input, `args[1]` for those that `*args` takes."""
        code = getattr(self.forward_code, "__code__", None)
        lead = 0 if self.separate else 1
        if code is not None and code.co_argcount >= count + lead:
            return code.co_varnames[lead : count + lead]
        out: list[str] = []
        for parameter in self.signature.parameters.values() if self.signature else ():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                out += [f"{parameter.name}[{k}]" for k in range(count - len(out))]
            elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                out.append(parameter.name)
        out += [f"input {k}" for k in range(len(out), count)]
        return tuple(out[:count])

    def forward(self, arguments: tuple, needs: tuple[bool, ...] = ()) -> Run:
        """Calls forward (and setup_context) as they stand, in the current grad mode."""
        self.evaluations += 1
        context = Context(needs or tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments))
        if self.separate:
            returned = self.function.forward(*arguments)
            self.function.setup_context(context, arguments, returned)
        else:
            returned = self.function.forward(context, *arguments)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        return Run(context, outputs, returned)

    def backward(self, context: Context, grads: tuple) -> tuple:
        """What backward returns, as a tuple."""
        returned = self.method(context, list(grads)) if self.boxed else self.method(context, *grads)
        return returned if isinstance(returned, tuple) else (returned,)


def function_class(value: typing.Any) -> type:
    """The Function that was meant: the class, or its `apply`."""
    bound = getattr(value, "__self__", None)
    if getattr(value, "__name__", "") == "apply" and isinstance(bound, type) and issubclass(bound, Function):
        return bound
    if not isinstance(value, type) or not issubclass(value, Function):
        raise UsageError(f"{_described(value)} is not a torch.autograd.Function: pass the class itself")
    return value


def _plain(function: typing.Any) -> typing.Any:
    """The user's own function below `once_differentiable`, `custom_bwd` and other well-behaved wrappers."""
    try:
        return inspect.unwrap(function)
    except ValueError:
        return function


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, torch.nn.Module):
        return f"{type(value).__name__} (a torch.nn.Module)"
    return f"{value!r}" if isinstance(value, (str, int, float)) else f"an object of type {type(value).__name__}"
