"""Running the user's model again without leaving a trace of it.

Every run starts from the same random numbers and the same state. Buffers are swapped for copies while it
runs (the originals are never written to), other attributes of modules are put back afterwards, and what
the model prints is swallowed.
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

from torchsleuth.auditor import accelerator
from torchsleuth.auditor.alone import alone
from torchsleuth.auditor.belongings import Belongings
from torchsleuth.auditor.changing import Changing, ChangingModules
from torchsleuth.auditor.compare import Chosen, output_leaves
from torchsleuth.auditor.compiling import uncompiled
from torchsleuth.auditor.sites import place_of_module_call
from torchsleuth.auditor.trace import Trace
from torchsleuth.hushed import hushed

_PLAIN = {bool, int, float, str}
_MODULES_OWN = frozenset(vars(nn.Module()))
_HOOKS = tuple(name for name, value in vars(nn.Module()).items() if "_hooks" in name and isinstance(value, dict))
HALVES = (torch.float16, torch.bfloat16)
WIDENED_BYTES = 1 << 30  # of weights in single precision
LENT_BYTES = 1 << 30  # of an input; a larger one is not copied, and stays as a model that writes to it leaves it
BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


class Runner:
    """Calls `model` on inputs as often as the experiments need; `calls` counts forward passes."""

    def __init__(self, model: nn.Module, autocast: tuple[str, torch.dtype] | None = None, seed: int = 20240229) -> None:
        self.model, self.autocast, self.seed = model, autocast, seed
        self.calls = 0
        self.kept: Kept | None = None
        self.lent: list[torch.Tensor] = []  # the program's own inputs and targets, which a model or a loss may write to
        self.regarded: frozenset[str] | None = None  # names of the results to give; all, where nothing says which of them count
        self._calm: tuple[typing.Any] | None = None
        self.generators: list[torch.Generator] = []  # the program's own, as far as the model was seen to draw from them
        self.precise = False  # without autocast, even if the program uses it
        self.differentiates = False  # the model takes derivatives itself (forces of an energy), and cannot run under `no_grad`
        self.wide = False  # in single precision, even if the model's weights have only half
        self._wide: dict[int, torch.Tensor] = {}
        named = list(model.named_modules())
        self.modules = [module for _, module in named]
        self.names = {id(m): name for name, m in named}
        self.types = {name: type(m).__name__ for name, m in named}

    def run(
        self,
        args: tuple,
        kwargs: dict,
        *,
        trace: Trace | Changing | ChangingModules | None = None,
        grad: bool = False,
        then: typing.Callable[[typing.Any], typing.Any] | None = None,
        mode: str = "as-is",
        seed: int = 0,
        changed: bool = False,
        after: tuple[tuple, dict] | None = None,
    ) -> typing.Any:
        """The model's result; `then` runs on it (a loss) under the same conditions and replaces it.

        `mode`: "as-is"; "no-statistics" (as is, but BatchNorm uses its running values); "eval". `changed`: the inputs are
        not the program's own, and may ask for what is not there. `after`: the inputs of a call that goes before.
        """
        self.calls += 1
        with contextlib.ExitStack() as stack:
            if self.kept is None:
                self.kept = Kept(self.modules)
                self.kept.lend(self.lent)
            stack.enter_context(untouched(self.model, self.kept))
            stack.callback(self._wind_back, [(g, g.get_state()) for g in self.generators], trace)
            stack.enter_context(alone())
            stack.enter_context(uncompiled())
            stack.enter_context(_one_way())
            if mode != "as-is":
                self._set_mode(mode)
            _seed_all(self.seed + seed)
            stack.enter_context(torch.enable_grad() if grad or self.differentiates else torch.no_grad())
            if self.autocast is not None:
                stack.enter_context(torch.autocast(self.autocast[0], dtype=self.autocast[1], enabled=not self.precise))
            if self.precise:
                stack.enter_context(accelerator.exact())
            if changed and accelerator.in_use():
                stack.enter_context(accelerator.Surviving())
            if self.wide:
                self._widen()
                args, kwargs = widened(args), widened(kwargs)
            if after is not None:
                self.model(*after[0], **after[1])
                _seed_all(self.seed + seed)
            if isinstance(trace, Trace):
                stack.enter_context(self._module_paths(trace))
                trace.guarded, trace.before_write = self._memory(), self.kept.hold
            if trace is not None:
                stack.enter_context(trace)
            result = self.model(*args, **kwargs)
            if then is not None:
                return then(result)
            return result if self.regarded is None else Chosen((name, leaf) for name, leaf in output_leaves(result) if name in self.regarded)

    @contextlib.contextmanager
    def precisely(self) -> typing.Iterator[None]:
        """For a while without autocast."""
        before, self.precise = self.precise, True
        try:
            yield
        finally:
            self.precise = before

    def calm(self, args: tuple, kwargs: dict) -> typing.Any:
        """The result in eval mode for the call's own inputs, computed once."""
        if self._calm is None:
            self._calm = (self.run(args, kwargs, mode="eval"),)
        return self._calm[0]

    @property
    def can_widen(self) -> bool:
        """Are there weights in half precision, few enough for a copy of all?"""
        halves = {id(t): t.numel() for m in self.modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None and t.dtype in HALVES}
        return 0 < 4 * sum(halves.values()) <= WIDENED_BYTES

    def tables(self, paths: set[str]) -> list[nn.Module]:
        """The modules at these paths, if each of them is a plain embedding table, whose result is what it looks up."""
        found = [module for module in self.modules if self.names[id(module)] in paths]
        return found if all(type(module).forward is nn.Embedding.forward for module in found) else []

    def _memory(self) -> dict[int, torch.Tensor]:
        """Parameters that a forward pass must not leave changed (it may clamp them, or keep a codebook in them), by address."""
        return {p.untyped_storage().data_ptr(): p for m in self.modules for p in m._parameters.values() if p is not None and p.layout is torch.strided}

    def _widen(self) -> None:
        """Copies in single precision in the place of weights that have half; `untouched` puts those back."""
        for module in self.modules:
            for name, tensor in module._parameters.items():
                if tensor is not None and tensor.dtype in HALVES:
                    if id(tensor) not in self._wide:
                        self._wide[id(tensor)] = nn.Parameter(tensor.detach().float(), requires_grad=False)
                    module._parameters[name] = self._wide[id(tensor)]
            for name, tensor in module._buffers.items():
                if tensor is not None and tensor.dtype in HALVES:
                    module._buffers[name] = tensor.float()

    def _wind_back(self, states: list[tuple[torch.Generator, torch.Tensor]], trace: Trace | Changing | ChangingModules | None) -> None:
        if isinstance(trace, Trace):
            new = [(g, state) for g, state in trace.generators if not any(g is known for known in self.generators)]
            self.generators += [g for g, _ in new]
            states = [*states, *new]
        for generator, state in states:
            generator.set_state(state)

    def _set_mode(self, mode: str) -> None:
        for module in self.modules:  # `untouched` puts the flags back
            if isinstance(module, torch.jit.ScriptModule):
                module.training = module.training and mode != "eval" and "BatchNorm" not in module.original_name
            elif mode == "eval" or isinstance(module, BATCH_NORMS):
                module.__dict__["training"] = False

    @contextlib.contextmanager
    def _module_paths(self, trace: Trace) -> Iterator[None]:
        """Lets the trace know which module is running."""
        stack: list[str] = []
        trace.module_path = lambda: stack[-1] if stack else ""
        trace.type_names = self.types

        def enter(module: nn.Module, inputs: typing.Any) -> None:
            stack.append(self.names.get(id(module), stack[-1] if stack else ""))
            trace.within.append(place_of_module_call(2, trace.within[-1] if trace.within else None))
            if trace.keep:
                trace.entered.append((len(trace.ops), stack[-1], trace.within[-1]))

        def leave(module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
            if stack:
                stack.pop()
                trace.within.pop()

        before = nn.modules.module.register_module_forward_pre_hook(enter)
        after = nn.modules.module.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()


class Kept:
    """All of a model that a run may change, as it was; good for any number of runs, each of which ends with `put_back()`."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._tables: list[tuple[dict, dict]] = []  # live, as it was
        self._hooks: list[tuple[dict, dict]] = []  # a model may give itself some when it is first called, and note that it has
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
            self._hooks += [(table, table.copy()) for name in _HOOKS if isinstance(table := attributes.get(name), dict)]
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


@contextlib.contextmanager
def _one_way() -> Iterator[None]:
    """Attention has a fast path in eval mode, which a traced run cannot take: no run takes it, so that all can be compared."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


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


def _seed_all(seed: int) -> None:
    random.seed(seed)
    # Not torch.manual_seed: before CUDA is initialised it leaves a seed behind that takes effect when it is.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed % 2**32)


def widened(value: typing.Any) -> typing.Any:
    """Arguments with tensors of half precision in single precision."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in HALVES else value
    if type(value) is dict:
        return {key: widened(item) for key, item in value.items()}
    return type(value)(map(widened, value)) if type(value) in (tuple, list) else value


def unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """The module inside a compiled, DataParallel or DDP wrapper, and what was taken off."""
    taken: list[str] = []
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(inner, nn.Module):
            model = inner
            taken.append("torch.compile")
        elif type(model).__name__ in ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel") and isinstance(
            getattr(model, "module", None), nn.Module
        ):
            taken.append(type(model).__name__)
            model = model.module
        else:
            return model, ", ".join(taken)
