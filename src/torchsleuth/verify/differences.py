"""Finite differences of a step's loss: is what backward left the gradient of what the step computes?

When a step begins (the first operation on a leaf that is recorded for backward), the verification run forks: the copy
waits. When backward has run, the copy is told a direction; it forks twice more, and those change the leaves a little
along it, go on to the same backward and answer with the loss they get there. Only on the CPU, only in a process
without other threads; nothing of the program is run twice apart from the part between the two moments.
"""

from __future__ import annotations

import functools
import gc
import math
import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
import typing
import warnings
from dataclasses import dataclass

import torch
from torch.overrides import TorchFunctionMode

from torchsleuth.probe.applying import Apply, apply_replaced
from torchsleuth.verify.job import Difference
from torchsleuth.verify.watching import leaves_of, optimized_parameters

_PATIENCE = 10.0  # seconds for a loss
_BIGGEST = 20_000_000  # elements of all leaves together
_CHANGES = (3e-3, 3e-4, 3e-2)  # the relative changes of the loss that are tried


@dataclass
class _Copy:
    """A forked process that stands at the beginning of the step."""

    pid: int
    ask: typing.Any  # files
    answer: typing.Any
    sequence: int  # of the next autograd node at that moment

    def loss_at(self, steps: dict[int, torch.Tensor], patience: float) -> float | None:
        """The step's loss with these changes of leaves (by identity); None where it did not get there."""
        if patience <= 0:
            return None
        try:
            pickle.dump({ident: step.numpy() for ident, step in steps.items()}, self.ask)
            self.ask.flush()
            ready, _, _ = select.select([self.answer], [], [], patience)
            return pickle.load(self.answer) if ready else None
        except (OSError, EOFError, pickle.PickleError, ValueError):
            return None

    def end(self) -> None:
        self.ask.close()
        self.answer.close()
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


class Differences:
    """One per verification run; `found` is what it answers."""

    def __init__(self, observer: typing.Any, seconds: float = _PATIENCE) -> None:
        self._left = seconds
        self.found: list[Difference] = []
        self.refused = ""
        self.is_copy = False
        self._observer = observer
        self._copy: _Copy | None = None
        self._report: typing.Any = None  # in an evaluating copy: where its loss goes
        self._pending: tuple | None = None
        self._mode = _FirstUse(self)
        self._mode.__enter__()
        self._mode.watch_functions()
        _tell_of_compilers(self._stop)

    # -- the beginning of a step ------------------------------------------------------------------

    def _stop(self) -> None:
        """Compilers trace what they see, and are not to see us."""
        self.refused, self._mode.is_armed = "the program compiles its code", False
        if torch.overrides._get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)

    def _hindrance(self) -> str:
        if torch.cuda.is_initialized():
            return "the program uses a GPU"
        if threading.active_count() > 1 or threading.current_thread() is not threading.main_thread():
            return "the program has several threads"
        return "the program has worker processes" if multiprocessing.active_children() else ""

    def snapshot(self, sequence: int, again: typing.Callable[[], object]) -> object:
        """Called behind the first recorded operation of a step. In an evaluating copy it returns what `again()` gives."""
        self.refused = self._hindrance()
        if self.refused:
            return None
        if self._copy is not None:
            self._copy.end()
        to_copy, to_us = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of forks beside native threads
            pid = os.fork()
        if pid:
            os.close(to_copy[0])
            os.close(to_us[1])
            self._copy = _Copy(pid, os.fdopen(to_copy[1], "wb"), os.fdopen(to_us[0], "rb"), sequence)
            return None
        try:
            self.is_copy = True
            os.close(to_copy[1])
            os.close(to_us[0])
            torch.set_num_threads(1)  # the threads of the pool were not copied
            questions = os.fdopen(to_copy[0], "rb")
            while True:
                steps = pickle.load(questions)
                evaluating = os.fork()
                if not evaluating:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(int(_PATIENCE) + 2)
                    self._report = to_us[1]
                    _moved(steps)
                    return again()
                _, status = os.waitpid(evaluating, 0)
                if status:
                    os.write(to_us[1], pickle.dumps(None))
        except BaseException:
            os._exit(1)

    # -- backward ---------------------------------------------------------------------------------

    def before_backward(self, roots: list[torch.Tensor], arguments: tuple, options: dict) -> None:
        self._mode.is_armed = False
        if self._report is not None:
            loss = float(roots[0].detach().double()) if len(roots) == 1 and roots[0].numel() == 1 else None
            os.write(self._report, pickle.dumps(loss))
            os._exit(0)
        self._pending = None
        copy = self._copy
        weights = arguments[0] if arguments else options.get("grad_tensors")
        if copy is None or len(roots) != 1 or roots[0].numel() != 1 or weights is not None or options.get("inputs") is not None:
            return
        if _oldest(roots[0]) < copy.sequence:
            self.refused = "the loss goes back to what was computed before the step"
            return
        leaves = {id(leaf): leaf for leaf in [*leaves_of(roots), *optimized_parameters()]}
        chosen = [leaf for leaf in leaves.values() if leaf.layout is torch.strided and leaf.is_floating_point()]
        if sum(leaf.numel() for leaf in chosen) > _BIGGEST or len(chosen) != len(leaves):
            self.refused = "there are too many parameters"
            return
        before = [None if leaf.grad is None else leaf.grad.detach().clone() for leaf in chosen]
        self._pending = (float(roots[0].detach().double()), chosen, before)

    def after_backward(self, number: int, again: bool) -> None:
        pending, self._pending = self._pending, None
        copy, self._copy = self._copy, None
        if pending is not None and copy is not None:
            began = time.monotonic()
            difference = _difference(copy, number, self._left, *pending)
            self._left -= time.monotonic() - began
            if difference is not None:
                self.found.append(difference)
            elif self._left <= 0:
                self.refused = "the time for it was over"
        if copy is not None:
            copy.end()
        if again and self._left > 0 and not self.refused.startswith("the program"):
            self._mode.is_armed = True


class _FirstUse(TorchFunctionMode):
    """Waits for the first operation of a step whose result has a history."""

    def __init__(self, differences: Differences) -> None:
        super().__init__()
        self._differences = differences
        self.is_armed = True

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if not self.is_armed or not torch.is_grad_enabled() or _writes(function, options):
            return function(*arguments, **options)
        return self._watched(function, arguments, options)

    def watch_functions(self) -> None:
        """`apply` of a custom Function is no torch function: it is watched by itself."""

        def watching(as_it_was: Apply) -> Apply:
            def apply(cls, *arguments, **options):
                if not self.is_armed or not torch.is_grad_enabled():
                    return as_it_was(cls, *arguments, **options)
                return self._watched(functools.partial(as_it_was, cls), arguments, options)

            return apply

        apply_replaced(watching)

    def _watched(self, function, arguments, options):
        state, sequence = torch.get_rng_state(), torch._C._autograd._get_sequence_nr()
        result = function(*arguments, **options)
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if isinstance(first, torch.Tensor) and first.grad_fn is not None and self.is_armed:
            self.is_armed = False

            def again():
                torch.set_rng_state(state)
                return function(*arguments, **options)

            repeated = self._differences.snapshot(sequence, again)
            return result if repeated is None else repeated
        return result


def _writes(function: typing.Any, options: dict) -> bool:
    name = getattr(function, "__name__", "")
    inplace = (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    return inplace or name in ("__setitem__", "__set__", "backward") or options.get("out") is not None or bool(options.get("inplace"))


def _tell_of_compilers(stop: typing.Callable[[], None]) -> None:
    def telling(original: typing.Any) -> typing.Any:
        @functools.wraps(original)
        def call(*arguments: typing.Any, **options: typing.Any) -> typing.Any:
            stop()
            return original(*arguments, **options)

        return call

    torch.compile, torch.jit.script, torch.jit.trace = telling(torch.compile), telling(torch.jit.script), telling(torch.jit.trace)


def _moved(steps: dict[int, typing.Any]) -> None:
    """The leaves changed; an identity that belongs to no such tensor here is left out."""
    for item in gc.get_objects():
        step = steps.get(id(item))
        if step is not None and isinstance(item, torch.Tensor) and item.is_leaf and tuple(item.shape) == tuple(step.shape):
            # Through .data: whoever counts versions is not to notice.
            item.data.add_(torch.from_numpy(step).to(item.dtype))


def _oldest(root: torch.Tensor) -> int:
    """The smallest sequence number among the nodes that lead to a tensor, leaves not counted."""
    pending, seen, oldest = [root.grad_fn], set(), 1 << 62
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if not hasattr(node, "variable"):
            oldest = min(oldest, node._sequence_nr())
        pending.extend(following for following, _ in node.next_functions)
    return oldest


def _difference(copy: _Copy, number: int, seconds: float, loss: float, leaves: list[torch.Tensor], before: list[torch.Tensor | None]) -> Difference | None:
    generator = torch.Generator().manual_seed(number)
    directions: dict[int, torch.Tensor] = {}
    predicted, scale = 0.0, 0.0
    for leaf, earlier in zip(leaves, before, strict=True):
        shape = leaf.shape
        gradient = torch.zeros(shape, dtype=torch.float64, device="cpu") if leaf.grad is None else leaf.grad.detach().double().cpu()
        if earlier is not None:
            gradient = gradient - earlier.double().cpu()
        size = float(gradient.norm())
        if not math.isfinite(size):
            return None
        random = torch.randn(shape, dtype=torch.float64, generator=generator, device="cpu")
        weight = float(torch.rand((), generator=generator, device="cpu")) + 0.5
        # Along the gradient, so that there is something to see, and a bit to the side, so that what it lacks is seen.
        direction = weight * (gradient / (size or 1.0) + random / max(float(random.norm()), 1e-12))
        directions[id(leaf)] = direction
        predicted += float((gradient * direction).sum())
        scale += weight * size
    size = math.sqrt(sum(float(leaf.detach().double().pow(2).sum()) for leaf in leaves))
    if not directions or scale * max(size, 1e-3) < 1e-3 * abs(loss) or scale == 0.0:
        return None  # the loss hardly depends on them: rounding errors would be compared
    best: Difference | None = None
    until = time.monotonic() + min(seconds, _PATIENCE)
    for change in _CHANGES:
        step = min(change * max(abs(loss), 1e-2), change * 10 * max(size, 1e-3) * scale) / scale
        values = [copy.loss_at({ident: (sign * step * d) for ident, d in directions.items()}, until - time.monotonic()) for sign in (1.0, -1.0)]
        if None in values or not all(math.isfinite(value) for value in values):
            continue
        found = Difference(predicted, (values[0] - values[1]) / (2 * step), scale, number)
        if best is None or abs(found.predicted - found.measured) < abs(best.predicted - best.measured):
            best = found
        if best.agrees:
            break
    return best
