"""The experiments' runs of the model: each starts from the same random numbers and the same state, and leaves no trace (`again/`)."""

from __future__ import annotations

import contextlib
import random
import sys
import typing
from collections.abc import Iterator

import torch
from torch import nn

from torchsleuth.again.kept import Kept, untouched
from torchsleuth.auditor.laboratory import accelerator
from torchsleuth.auditor.laboratory.alone import alone
from torchsleuth.auditor.laboratory.changing import Changing, ChangingModules
from torchsleuth.auditor.laboratory.compare import Chosen, output_leaves
from torchsleuth.auditor.tracing.compiling import uncompiled
from torchsleuth.auditor.tracing.sites import place_of_module_call
from torchsleuth.auditor.tracing.trace import Trace

HALVES = (torch.float16, torch.bfloat16)
WIDENED_BYTES = 1 << 30  # of weights in single precision
MOST_HELD = 1000  # plain containers that are looked into
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
        self.loose = _loose(self.modules)

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

        `mode`: "as-is"; "no-statistics" (as is, but BatchNorm uses its running values); "eval"; "model-eval" (as far as `model.eval()` reaches). `changed`: the inputs are
        not the program's own, and may ask for what is not there. `after`: the inputs of a call that goes before.
        """
        self.calls += 1
        with contextlib.ExitStack() as stack:
            if self.kept is None:
                self.kept = Kept([*self.modules, *self.loose])
                self.kept.lend(self.lent)
            stack.enter_context(untouched(self.model, self.kept))
            stack.callback(self._wind_back, [(g, g.get_state()) for g in self.generators], trace)
            stack.enter_context(alone())
            stack.enter_context(uncompiled())
            stack.enter_context(_one_way())
            if mode != "as-is":
                self._set_mode(mode)
            _seed_all(self.seed + seed)
            stack.enter_context(torch.inference_mode(False))  # what calls for the audit may stand in such a block
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
        for module in (*self.modules, *self.loose) if mode != "model-eval" else self.modules:  # `untouched` puts the flags back
            if isinstance(module, torch.jit.ScriptModule):
                module.training = module.training and not mode.endswith("eval") and "BatchNorm" not in module.original_name
            elif mode.endswith("eval") or isinstance(module, BATCH_NORMS):
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


def _loose(modules: list[nn.Module]) -> list[nn.Module]:
    """Layers that the model's modules keep in plain lists, tuples and dicts: no mode reaches them, and their dropout would show in each experiment."""
    own, found = {id(module) for module in modules}, dict[int, nn.Module]()
    todo = [value for module in modules for name, value in vars(module).items() if name[:1] != "_" and type(value) in (list, tuple, dict)]
    for _ in range(MOST_HELD):
        if not todo:
            break
        held = todo.pop()
        for item in held.values() if isinstance(held, dict) else held:
            if isinstance(item, nn.Module) and id(item) not in own:
                found.update((id(one), one) for one in item.modules() if id(one) not in own)
            elif type(item) in (list, tuple, dict):
                todo.append(item)
    return list(found.values())


@contextlib.contextmanager
def _one_way() -> Iterator[None]:
    """Attention has a fast path in eval mode, which a traced run cannot take: no run takes it, so that all can be compared."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


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
