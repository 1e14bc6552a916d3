"""The trace of one step: every torch call with its source expression, and who made each tensor from which.

A `TorchFunctionMode` sees each call. It can keep the results (paired runs compare them), change a result
(experiments on embeddings) and hand chosen calls to watchers (losses, indices). Without `keep` no tensor
is held: a tensor is known by a number, valid as long as a weak reference says it is still the same one.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterator

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function

from torchsleuth import env
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.callers import caller_here
from torchsleuth.auditor.tracing.modestack import imagined, transformed, undispatched
from torchsleuth.auditor.tracing.sites import NOWHERE, TRAMPOLINE, Place, place_here, site_of

if typing.TYPE_CHECKING:
    from torchsleuth.auditor.inputs.beforehand import Beforehand

MOST_OPERATIONS = 300_000

_PROPERTIES = {"data", "T", "mT", "H", "mH", "real", "imag"}
_QUESTIONS = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size", "__len__", "__hash__",
    "__repr__", "__str__", "data_ptr", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
    "get_device", "untyped_storage", "storage", "is_same_size", "is_tensor", "is_storage", "is_inference", "type",
    "is_pinned", "is_shared", "register_hook", "is_conj", "is_neg", "is_set_to", "retain_grad", "result_type", "can_cast",
    "__reduce_ex__", "__setstate__", "__dir__", "__deepcopy__", "has_names", "_is_view", "manual_seed", "get_default_dtype",
    "is_grad_enabled", "is_autocast_enabled", "set_default_dtype", "broadcast_shapes", "__contains__",
}  # fmt: skip
_WRITING = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}
# Calls that carry a tensor's values out of torch's sight.
ENTRIES = {"tensor", "as_tensor", "from_numpy", "asarray"}  # and those that bring values in
MOST_VALUES = 64
EXITS = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "__complex__", "is_nonzero"}
CHANGING = {f"{name}_" for name in ("sub", "add", "mul", "div", "true_divide", "neg", "exp", "log", "sqrt", "pow")} | {"__isub__", "__iadd__", "__imul__", "__itruediv__"}
FILLING = {"pad_sequence", "pad", "full", "new_full", "zeros", "new_zeros", "tensor"}  # so that samples of several lengths lie in one tensor
SEVERING = {"data", "detach", "detach_", "grad", "numpy"}  # those that helpers of a program do for several of its lines


class Seen(typing.NamedTuple):
    """What is remembered of a tensor that took part in a call."""

    key: int
    size: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool


class Op:
    """One call. `tensors` is empty unless the trace keeps results."""

    __slots__ = ("index", "name", "place", "module", "ins", "outs", "plain", "grad_enabled", "scope", "tensors",
                 "writes", "numbers", "values", "caller", "transformed")  # fmt: skip

    def __init__(self, index: int, name: str, place: Place, module: str, ins: tuple[Seen, ...], plain: tuple) -> None:
        self.index, self.name, self.place, self.module, self.ins, self.plain = index, name, place, module, ins, plain
        self.outs: tuple[Seen, ...] = ()
        self.grad_enabled = True
        self.scope: Place = NOWHERE
        self.caller: Place = NOWHERE  # of what cuts a history: where the function that does so was called
        self.tensors: tuple[torch.Tensor, ...] = ()
        self.writes = False
        self.transformed = transformed()
        self.values: tuple[float, ...] = ()  # the first of those that an exit hands out, or that an entry brings in
        self.numbers = (0, 0)  # autograd sequence numbers before and after the call

    def argument(self, position: int, name: str, default: typing.Any = None) -> typing.Any:
        """A plain (non-tensor) argument by position or name."""
        positional, named = self.plain
        if name in named:
            return named[name]
        return positional[position] if position < len(positional) else default


Watcher = Callable[[Op, tuple, dict, typing.Any], None]
Change = Callable[[Op, tuple, dict, typing.Any], typing.Any]


def quietly(watcher: Watcher) -> Watcher:
    """A watcher that never raises into the program: what it cannot read it leaves out."""

    def watch(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        try:
            watcher(op, args, kwargs, result)
        except Exception:
            pass

    return watch


class Trace(TorchFunctionMode):
    def __init__(
        self,
        *,
        keep: bool = False,
        change: Change | None = None,
        watchers: dict[str, list[Watcher]] | None = None,
        early: dict[str, list[Watcher]] | None = None,
        module_path: Callable[[], str] | None = None,
        most: int = MOST_OPERATIONS,
    ) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.carried = False  # call through trampolines, so that warnings are attributed to the program's own line
        self._trampolines: dict[tuple[types.CodeType, int], types.FunctionType] = {}
        self.keep, self.change, self.watchers, self.most = keep, change, watchers or {}, most
        self.early = early or {}  # watchers that look before the call, which may raise
        self.every: list[Watcher] = []  # watchers that look at each call
        self.module_path = module_path or (lambda: "")
        self.parameters: dict[int, weakref.ref] = {}  # key -> parameter that some call took as an input
        self.generators: list[tuple[torch.Generator, torch.Tensor]] = []  # the program's own, as they were before their first use here
        self.guarded: dict[int, torch.Tensor] = {}  # parameters by the address of their memory, and who is told before one is written to
        self.before_write: Callable[[torch.Tensor], None] | None = None
        self.bared: dict[int, int] = {}  # address of a single number without its history -> its key
        self.producer: dict[int, int] = {}  # tensor key -> index of the operation that made it
        self.failed: Op | None = None
        self.truncated = False
        self.kept_bytes = 0
        self._lying: dict[int, list[Op]] = {}  # calls whose kept results share memory with the program's, by its address
        self._keys: dict[int, tuple[weakref.ref, int]] = {}
        self.beforehand: Beforehand | None = None  # what made the inputs where that was not seen, for an audit that is called
        self._next = 0
        self._no_grad: Place = NOWHERE
        self.type_names: dict[str, str] = {}
        self.within: list[Place] = []  # where the modules that are running were called, the innermost last
        self.entered: list[tuple[int, str, Place]] = []  # calls of modules: before which operation, which one, and from where

    def follow(self, before: Trace) -> None:
        """Go on where another trace has ended: the same tensors have the same numbers, and the calls that made them are known."""
        self.ops, self.producer = list(before.ops), dict(before.producer)
        self.parameters, self.bared = dict(before.parameters), dict(before.bared)
        self._keys, self._next = dict(before._keys), before._next

    # -- tensors -----------------------------------------------------------------------------

    def key(self, tensor: torch.Tensor, fresh: bool = False) -> int:
        """The number of this tensor; `fresh` gives it a new one because it was just made or rewritten."""
        known = self._keys.get(id(tensor))
        if known is not None and known[0]() is tensor and not fresh:
            return known[1]
        self._next += 1
        self._keys[id(tensor)] = (weakref.ref(tensor), self._next)
        return self._next

    def tensor(self, key: int) -> torch.Tensor | None:
        """The tensor of this number, if the program still holds it."""
        for reference, number in self._keys.values():
            if number == key:
                return reference()
        return None

    def alive(self) -> Iterator[torch.Tensor]:
        """The tensors of this trace that the program still holds, the latest first."""
        return (tensor for reference, _ in reversed(list(self._keys.values())) if (tensor := reference()) is not None)

    def known_key(self, tensor: torch.Tensor) -> int | None:
        known = self._keys.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def _seen(self, tensor: torch.Tensor, fresh: bool = False) -> Seen:
        key = self.key(tensor, fresh)
        return Seen(key, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)

    # -- the mode ------------------------------------------------------------------------------

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = _name_of(func)
        call = self._trampoline(sys._getframe(1)) if self.carried else _call
        if name is None or len(self.ops) >= self.most:
            self.truncated = self.truncated or name is not None
            return call(func, args, kwargs)
        if imagined():
            return call(func, args, kwargs)
        if name == "_set_grad_enabled":
            if args and args[0] is False and torch.is_grad_enabled():
                self._no_grad = place_here(2)._replace(decorated=_decorated(sys._getframe(1)))
            return call(func, args, kwargs)
        try:
            with undispatched():
                op, inputs = self._begun(name, args, kwargs)
        except Exception:  # a tensor without a shape (a lazy parameter): the program must not notice that we cannot read it
            return call(func, args, kwargs)
        with undispatched():
            for watcher in self.early.get(name, ()):
                watcher(op, args, kwargs, None)
        number = _sequence_number()
        try:
            result = call(func, args, kwargs)
        except BaseException:
            self.failed = op
            raise
        op.numbers = (number, _sequence_number())
        if self.change is not None:
            result = self.change(op, args, kwargs, result)
        try:
            with undispatched():
                self._note_result(op, inputs, args, result)
        except Exception:
            return result
        self.ops.append(op)
        with undispatched():
            for watcher in (*self.watchers.get(name, ()), *self.every):
                watcher(op, args, kwargs, result)
        return result

    def _begun(self, name: str, args: tuple, kwargs: dict) -> tuple[Op, list[torch.Tensor]]:
        inputs = tensors_in((*args, *kwargs.values()))
        op = Op(
            len(self.ops), name, place_here(3, self.within[-1] if self.within else None), self.module_path(), tuple([self._seen(t) for t in inputs]),
            (tuple([_plain(a) for a in args]), {k: _plain(v) for k, v in kwargs.items()} if kwargs else {}),
        )  # fmt: skip
        for tensor, seen in zip(inputs, op.ins, strict=True):
            if type(tensor) is torch.nn.Parameter and seen.key not in self.parameters:
                self.parameters[seen.key] = weakref.ref(tensor)
        writes = name[-1] == "_" and (name[-2:] != "__" or name in _WRITING)
        if self.keep and (writes or "out" in kwargs or kwargs.get("inplace") or (args and args[-1] is True)):  # it may be `inplace`
            for tensor in tensors_in((args[:1], kwargs.get("out"))):
                self._part(tensor)
        if self.before_write is not None and writes:
            for tensor in tensors_in((args[:1], kwargs.get("out"))):
                parameter = self.guarded.get(tensor.untyped_storage().data_ptr())
                if parameter is not None:
                    self.before_write(parameter)
        generator = kwargs.get("generator")
        if type(generator) is torch.Generator and not any(generator is known for known, _ in self.generators):
            self.generators.append((generator, generator.get_state()))
        if name in SEVERING or name in CHANGING or name in FILLING:
            op.caller = caller_here(3)
        op.grad_enabled = torch.is_grad_enabled()
        if not op.grad_enabled and not torch.is_inference_mode_enabled():
            op.scope = self._no_grad
        return op, inputs

    def _trampoline(self, frame: types.FrameType) -> types.FunctionType:
        if frame.f_code is _HANDLE and frame.f_back is not None and frame.f_back.f_back is not None:
            frame = frame.f_back.f_back  # a Python function of torch's handed the call over: its caller is the one to blame
        key = (frame.f_code, frame.f_lasti)
        made = self._trampolines.get(key)
        if made is None or made.__globals__ is not frame.f_globals:
            code = _call.__code__.replace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno or 1, co_name=TRAMPOLINE)
            made = self._trampolines[key] = types.FunctionType(code, frame.f_globals, TRAMPOLINE)
        return made

    def _note_result(self, op: Op, inputs: list[torch.Tensor], args: tuple, result: typing.Any) -> None:
        outputs = tensors_in(result)
        if op.name in ("__setitem__", "set_data") and args and isinstance(args[0], torch.Tensor):
            outputs, op.writes = [args[0]], True
        elif outputs and op.name.endswith("_") and not op.name.endswith("__") and any(o is i for o in outputs for i in inputs):
            op.writes = True
        if op.writes:
            base = outputs[0]._base
            if base is not None and base is not outputs[0]:
                outputs.append(base)
        taken = {id(tensor) for tensor in inputs}
        op.outs = tuple([self._seen(t, op.writes or id(t) not in taken) for t in outputs])
        given = {seen.key for seen in op.ins}
        for seen in op.outs:
            if seen.key not in given:  # `y.float()` of what is float already gives `y` back: it did not make it
                self.producer.setdefault(seen.key, op.index)
        if op.name in EXITS or (op.name in ENTRIES and not inputs):
            op.values = _values(result)
        if op.name in ("data", "detach") and outputs and outputs[0].numel() == 1:
            self.bared[outputs[0].data_ptr()] = op.outs[0].key
        if self.keep:
            op.tensors = tuple(t.detach().clone() if op.writes else t.detach() for t in outputs)
            for tensor in () if op.writes else outputs:
                self._lying.setdefault(_address(tensor), []).append(op)
            self.kept_bytes += sum(t.numel() * t.element_size() for t in op.tensors)

    def _part(self, tensor: torch.Tensor) -> None:
        """This tensor is about to be written to: what was kept of its memory is to stay as it is."""
        address = _address(tensor)
        for op in self._lying.pop(address, ()):
            op.tensors = tuple(kept.clone() if _address(kept) == address else kept for kept in op.tensors)

    # -- questions -----------------------------------------------------------------------------

    def site(self, op: Op) -> Site | None:
        return site_of(op.place, op.module, self.type_names.get(op.module, ""))

    def calls(self, op: Op) -> list[Place]:
        """Where the modules that this operation is a part of were called, the outermost first."""
        parts = op.module.split(".") if op.module else []
        places = []
        for count in range(1, len(parts) + 1):
            path = ".".join(parts[:count])
            before = [place for index, name, place in self.entered if name == path and index <= op.index]
            places += before[-1:]
        return places

    def maker(self, seen: Seen) -> Op | None:
        index = self.producer.get(seen.key)
        return self.ops[index] if index is not None else None

    def made_through(self, seen: Seen, through: typing.Container[str]) -> Iterator[Op]:
        """The operations back from a tensor: each maker, as long as it is one of `through`, then the first that is not."""
        while (op := self.maker(seen)) is not None:
            yield op
            if op.name not in through or not op.ins:
                return
            seen = op.ins[0]

    def ancestors(self, keys: set[int], without: Callable[[Op], bool] | None = None) -> set[int]:
        """Keys of all tensors that these were computed from, themselves included; not by way of a call that is to be left out."""
        found, todo = set(keys), list(keys)
        while todo:
            index = self.producer.get(todo.pop())
            if index is None or (without is not None and without(self.ops[index])):
                continue
            for seen in self.ops[index].ins:
                if seen.key not in found:
                    found.add(seen.key)
                    todo.append(seen.key)
        return found

    def descendants(self, keys: set[int]) -> set[int]:
        """Keys of all tensors computed from these, themselves included (calls are in order of time)."""
        found = set(keys)
        for op in self.ops:
            if any(seen.key in found for seen in op.ins):
                found.update(seen.key for seen in op.outs)
        return found


def _call(func, args, kwargs): return func(*args, **kwargs)  # fmt: skip  # noqa: E704  (one line: all of it has the caller's line number)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


_sequence_number = torch._C._autograd._get_sequence_nr
_HANDLE = handle_torch_function.__code__

# Operations that only rearrange what is in a tensor.
ARRANGING = {
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous", "T", "mT",
    "t", "swapaxes", "swapdims", "movedim", "moveaxis", "clone", "to", "float", "double", "half", "bfloat16", "__getitem__", "view_as",
    "reshape_as", "expand", "expand_as", "narrow", "select", "type_as", "chunk", "split", "unbind", "ravel", "atleast_1d",
    "atleast_2d", "squeeze_", "unsqueeze_", "cpu", "cuda", "rename", "refine_names", "requires_grad_",
}  # fmt: skip


def tensors_in(value: typing.Any) -> list[torch.Tensor]:
    """All tensors in a value and the containers in it, in order."""
    return [value] if isinstance(value, torch.Tensor) else _gathered((value,), [], 0)


def _gathered(values: typing.Iterable[typing.Any], found: list[torch.Tensor], depth: int) -> list[torch.Tensor]:
    for value in values:  # in a loop, and into one list: every call of a step comes through here
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif depth < 4 and isinstance(value, (tuple, list, dict)):
            _gathered(value.values() if isinstance(value, dict) else value, found, depth + 1)
    return found


def _decorated(frame: types.FrameType | None) -> types.CodeType | None:
    """The function that `@torch.no_grad()` stands on, where it is torch's wrapper around it that enters the context here."""
    for _ in range(6):
        if frame is None:
            return None
        if env.is_context_decorator(frame.f_code):
            return getattr(inspect.unwrap(frame.f_locals.get("func")), "__code__", None)
        frame = frame.f_back
    return None


def _name_of(func: typing.Any) -> str | None:
    """The call's name; None for questions about a tensor (shape, dtype, …), which say nothing about values."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        return name if name in _PROPERTIES else None
    if name == "__set__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        return {"requires_grad": "requires_grad_", "data": "set_data"}.get(name)
    return None if name in _QUESTIONS else name


def _values(result: typing.Any) -> tuple[float, ...]:
    if isinstance(result, float):
        return (result,)
    with torch._C.DisableTorchFunction():
        if isinstance(result, torch.Tensor):
            result = result.detach().flatten()[:MOST_VALUES].tolist() if result.device.type == "cpu" and result.is_floating_point() else []
        elif hasattr(result, "ravel"):  # a NumPy array
            result = result.ravel()[:MOST_VALUES].tolist()
    found: list[float] = []
    todo = [result] if isinstance(result, list) else []
    while todo and len(found) < MOST_VALUES:
        value = todo.pop(0)
        if isinstance(value, list):
            todo = value[:MOST_VALUES] + todo
        elif isinstance(value, float):
            found.append(value)
    return tuple(found)


def _plain(value: typing.Any, depth: int = 0) -> typing.Any:
    """Arguments that are not tensors, without holding on to anything large."""
    if value is None or isinstance(value, (int, float, bool, str)):
        return value
    if isinstance(value, slice):
        return slice(*(_plain(part, depth + 1) for part in (value.start, value.stop, value.step)))
    if isinstance(value, torch.dtype):
        return str(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (tuple, list)) and depth < 2 and len(value) <= 16:
        return tuple(_plain(v, depth + 1) for v in value)
    return "?"
