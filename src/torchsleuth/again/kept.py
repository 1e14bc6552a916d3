"""A model that is run again and is as before afterwards: `untouched`, and `Kept`, all of it that a run may change.

Buffers are swapped for copies while it runs (the originals are never written to), other attributes of modules are put back
afterwards, so are random numbers, and what the model prints is swallowed.
"""

from __future__ import annotations

import contextlib
import operator
import random
import sys
import threading
import typing
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from torchsleuth.again.belongings import Belongings
from torchsleuth.again.hushed import hushed

_PLAIN = {bool, int, float, str}
_MODULES_OWN = frozenset(vars(nn.Module()))
_HOOKS = tuple(name for name, value in vars(nn.Module()).items() if "_hooks" in name and isinstance(value, dict))
LENT_BYTES = 1 << 30  # of an input; a larger one is not copied, and stays as a model that writes to it leaves it


class Kept:
    """All of a model that a run may change, as it was; good for any number of runs, each of which ends with `put_back()`."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._tables: list[tuple[dict, dict]] = []  # live, as it was
        self._hooks: list[tuple[dict, dict]] = []  # a model may give itself some when it is first called, and note that it has
        self._hookless: list[dict] = []  # tables of hooks, nearly all of them: nothing is in them, as long as no handle is given out
        self._handles = RemovableHandle.next_id
        self._belongings = Belongings(self.hold)
        self._modes: list[tuple[nn.Module, bool]] = []
        self._buffered: list[dict] = []
        self._grads: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._held: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self._lent: list[list[typing.Any]] = []
        for module in modules:
            self._grads += [(p, p.grad) for p in module._parameters.values() if p is not None]
            if isinstance(module, torch.jit.ScriptModule):  # its tables are not Python's, and nothing can be put in their place
                for buffer in module._buffers.values():
                    self.hold(buffer)
                self._modes.append((module, module.training))
                continue
            attributes = module.__dict__
            own = type(module).__module__.startswith("torch.nn.")
            tables = (attributes, module._buffers, module._parameters, module._modules)
            self._tables += [(table, table.copy()) for table in tables if table or not own]
            for table in map(attributes.get, _HOOKS):
                if table:
                    self._hooks.append((table, table.copy()))
                elif table is not None:
                    self._hookless.append(table)
            for name, value in attributes.items():
                if value is not None and type(value) not in _PLAIN and name not in _MODULES_OWN:
                    self._belongings.add(value)
            if module._buffers:
                self._buffered.append(module._buffers)

    def hold(self, tensor: torch.Tensor) -> None:
        """This tensor's values are put back, too."""
        if id(tensor) not in self._held:
            self._held[id(tensor)] = (tensor, tensor.detach().clone(), tensor._version)

    def lend(self, tensors: typing.Iterable[torch.Tensor]) -> None:
        """These are the program's data. They are put back if they were written to."""
        for tensor in tensors:
            if tensor.layout is torch.strided and not tensor.is_inference() and tensor.numel() * tensor.element_size() <= LENT_BYTES:
                self._lent.append([tensor, tensor.detach().clone(), tensor._version, tensor.requires_grad, tensor.grad if tensor.is_leaf else None])

    def lend_buffers(self) -> None:
        """Copies in their place, for the run to write to: a graph that waits for its backward pass may need the originals."""
        for table in self._buffered:
            for name, buffer in table.items():
                if buffer is not None:
                    table[name] = buffer.detach().clone()

    def put_back(self) -> None:
        for table, before in self._tables:
            if len(table) != len(before) or not all(map(operator.is_, table.values(), before.values())):
                table.clear()
                table.update(before)
        for table, before in self._hooks:
            if len(table) != len(before):
                table.clear()
                table.update(before)
        if self._handles != RemovableHandle.next_id:
            for table in self._hookless:
                table.clear()
            self._handles = RemovableHandle.next_id
        self._belongings.put_back()
        for module, training in self._modes:
            module.training = training
        for key, (tensor, copy, version) in self._held.items():
            if tensor._version != version or not torch.equal(tensor, copy):
                tensor.data.copy_(copy)  # not counted as a write: a graph may wait for its backward pass
                self._held[key] = (tensor, copy, tensor._version)
        for parameter, grad in self._grads:
            if parameter.grad is not grad:
                parameter.grad = grad
        self.give_back()

    def give_back(self) -> None:
        """What was lent, as it was."""
        for lent in self._lent:
            tensor, copy, version, requires_grad, grad = lent
            if tensor._version != version:
                tensor.data.copy_(copy)
                lent[2] = tensor._version
            if tensor.is_leaf and (tensor.requires_grad != requires_grad or tensor.grad is not grad):
                tensor.grad = grad
                tensor.requires_grad_(requires_grad)


@contextlib.contextmanager
def untouched(model: nn.Module, kept: Kept | None = None) -> Iterator[None]:
    """Whatever happens inside, the model, the random numbers and the standard streams are as before."""
    kept = kept or Kept(list(model.modules()))
    kept.lend_buffers()
    try:
        with random_kept(), hushed():
            yield
    finally:
        kept.put_back()


_keeping = threading.local()


@contextlib.contextmanager
def random_kept() -> Iterator[None]:
    """Random numbers are as before; inside another such block there is nothing left to keep."""
    if getattr(_keeping, "on", False):
        yield
        return
    _keeping.on = True
    numpy_random = sys.modules.get("numpy.random")
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        _keeping.on = False
        random.setstate(python_state)
        torch.set_rng_state(torch_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
