"""Watching a running program: the first inputs of every custom Function it applies, checked later.

`FunctionWatch` stands between `Function.apply` and the C++ below it only while it is started. The
first call of each Function class copies its inputs (detached), and so does one of its next calls that wants
gradients for more of them; after a few dozen calls each costs one set lookup.
Nothing is read back from a device, no random number is drawn, and the copies are dropped by `reports`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing

import torch
from torch.autograd.function import BackwardCFunction

from torchsleuth.again.hushed import hushed
from torchsleuth.probe.applying import Apply, apply_replaced

if typing.TYPE_CHECKING:
    from torchsleuth.checker.report import CheckReport
    from torchsleuth.checker.trial import Trial

# Inputs larger than this in all are remembered as shapes only.
LARGEST = 256 * 2**20
# So many calls of a Function are looked at for the one that wants gradients for most of its inputs.
CALLS = 64


class FunctionWatch:
    """Captures the first inputs of each custom Function between `start` and `stop`; `reports` checks them.

    One watch at a time is active; starting a second one raises. Functions defined inside torch itself
    are not custom and not watched.
    """

    _active: typing.ClassVar[FunctionWatch | None] = None

    def __init__(self) -> None:
        self._inputs: dict[type, tuple | None] = {}
        self._handed: dict[type, tuple[int, int]] = {}  # those that get a module and its parameters: a position of one, of how many
        self._seen: set[type] = set()  # those that are known well enough
        self._wanted: dict[type, int] = {}  # for how many inputs the captured call wants gradients
        self._calls: dict[type, int] = {}
        self._twice: set[type] = set()  # whose backward the program records, to differentiate it again
        self._kept: dict[int, dict[str, int | None]] = {}  # by the node of a first call: the versions of the tensors on its ctx
        self._get_user_fn: typing.Any = None
        self._leave_apply: typing.Callable[[], None] | None = None
        self._overwritten: set[type] = set()  # of those: one had changed when backward came

    def __enter__(self) -> FunctionWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if FunctionWatch._active is not None:
            raise RuntimeError("another FunctionWatch is active")
        FunctionWatch._active = self
        seen, tells_more, capture, note = self._seen, self._tells_more, self._capture, self._note_ctx

        def watching(as_it_was: Apply) -> Apply:
            def apply(cls, *arguments, **keywords):
                if cls not in seen and tells_more(cls, arguments):
                    capture(cls, arguments)
                    return note(cls, as_it_was(cls, *arguments, **keywords))
                return as_it_was(cls, *arguments, **keywords)

            return apply

        self._leave_apply = apply_replaced(watching)

        # Asked for before backward is called, so that no frame of ours stands in a traceback from there. Where torch has no such
        # method nothing is known of the program's backward passes, and nothing is said that depends on them.
        self._get_user_fn = original = getattr(BackwardCFunction, "_get_user_fn", None)
        if original is not None:

            def get_user_fn(node):
                self._note_backward(node)
                return original(node)

            BackwardCFunction._get_user_fn = get_user_fn

    def stop(self) -> None:
        if FunctionWatch._active is self:
            FunctionWatch._active = None
            if self._get_user_fn is not None:
                BackwardCFunction._get_user_fn = self._get_user_fn
            if self._leave_apply is not None:
                self._leave_apply()

    def seen(self) -> list[type]:
        return list(self._inputs)

    def inputs_of(self, function: type) -> tuple | None:
        return self._inputs.get(function)

    def reports(self, as_used: bool = False) -> list[CheckReport]:
        """One report per Function seen; the captured inputs are let go. A check that fails is a note, never an error.

        `as_used` leaves out what this program does not suffer from: Functions and inputs whose gradient it never wants,
        surrogates, which are meant, a wrong second derivative where none is taken, and tensors on ctx that nobody overwrites.
        """
        from torchsleuth.checker import check_trial
        from torchsleuth.checker.arguments import twice_refused
        from torchsleuth.checker.report import report_of
        from torchsleuth.checker.subject import Subject

        self.stop()
        out = []
        captured, self._inputs = self._inputs, {}
        for function, inputs in captured.items():
            if as_used and not self._wanted.get(function):
                continue  # no gradient was ever asked of it
            if function in self._handed:
                position, count = self._handed[function]
                out.append(report_of((), notes=(f"{function.__name__}: not checked: {twice_refused(Subject(function).names(count)[position])}",)))
                continue
            if inputs is None:
                out.append(report_of((), notes=(f"{function.__name__}: its inputs were too large to keep; not checked",)))
                continue
            try:
                with hushed():
                    trial = check_trial(function, *inputs)
                if as_used:
                    trial = self._suffered(function, trial)
                report = report_of((trial,), as_used, strict=not as_used)
                out.append(dataclasses.replace(report, notes=_in_brief(report)) if as_used and report.ok else report)
            except Exception as error:
                out.append(report_of((), notes=(f"{function.__name__}: not checked: {error}",)))
        return out

    def _suffered(self, function: type, trial: Trial) -> Trial:
        idle = () if function in self._twice else ("double-backward", "double-backward-raises")
        idle += () if function in self._overwritten else ("kept-on-ctx",)
        return dataclasses.replace(trial, findings=tuple(f for f in trial.findings if f.kind not in idle), twice=function in self._twice)

    def _note_ctx(self, function: type, outputs: typing.Any) -> typing.Any:
        """Remembers the versions of what this call left on its ctx; no tensor is held."""
        with contextlib.suppress(Exception):
            for output in outputs if isinstance(outputs, tuple) else (outputs,):
                node = output.grad_fn if isinstance(output, torch.Tensor) else None
                if getattr(node, "_forward_cls", None) is function:
                    names = [name for name, value in vars(node).items() if isinstance(value, torch.Tensor)]
                    self._kept[id(node)] = {name: _version(node, name) for name in names}
                    break
        return outputs

    def _note_backward(self, node: typing.Any) -> None:
        with contextlib.suppress(Exception):
            if torch.is_grad_enabled():  # in the engine only under create_graph=True
                self._twice.add(node._forward_cls)
            versions = self._kept.pop(id(node), {}) if self._kept else {}
            if any(_version(node, name) != version for name, version in versions.items()):
                self._overwritten.add(node._forward_cls)

    def _tells_more(self, function: type, arguments: tuple) -> bool:
        """Is this the first call, or one that wants gradients for more inputs than the one that was kept?"""
        calls = self._calls[function] = self._calls.get(function, 0) + 1
        if calls >= CALLS:
            self._seen.add(function)
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        wanted = sum(a.requires_grad for a in tensors) if torch.is_grad_enabled() else 0
        if wanted == len(tensors):
            self._seen.add(function)  # no other call can tell more
        if calls > 1 and wanted <= self._wanted[function]:
            return False
        self._wanted[function] = wanted
        return True

    def _capture(self, function: type, arguments: tuple) -> None:
        if (function.__module__ or "").partition(".")[0] in ("torch", "torchsleuth"):
            return
        from torchsleuth.checker.arguments import handed_twice

        if handed := handed_twice(arguments):
            self._inputs[function], self._handed[function] = None, (handed[0], len(arguments))
            return
        size = sum(a.numel() * a.element_size() for a in arguments if isinstance(a, torch.Tensor))
        self._inputs[function] = tuple(_copy(a, size > LARGEST) for a in arguments)


def _in_brief(report: CheckReport) -> tuple[str, ...]:
    """Nobody asked about this Function: what was tried on a right one is for `check` to say."""
    (trial,) = report.trials
    verdict = "backward is not the derivative of forward, apparently on purpose" if trial.accepted else "its gradient is the derivative of forward"
    return f"{trial.function}: {verdict}", *(f"{trial.function}: {remark}" for remark in trial.remarks)


def _version(node: typing.Any, name: str) -> int | None:
    value = vars(node).get(name)
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _copy(value: typing.Any, large: bool) -> typing.Any:
    """A detached copy with the same requires_grad; for large inputs random values of the same shape, drawn on no global generator."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        if large and value.is_floating_point():
            flat = value.detach().reshape(-1) if value.is_contiguous() else value.detach()[tuple(slice(0, 8) for _ in value.shape)].reshape(-1)
            sample = flat[:4096].clone()
            copy = Large(sample, tuple(value.shape)).whole() if sample.numel() else torch.empty_like(value)
        else:
            copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad) if value.is_floating_point() else copy


class Large:
    """A large input remembered by its first elements, repeated to its shape when it is needed."""

    def __init__(self, sample: torch.Tensor, shape: tuple[int, ...]):
        self.sample, self.shape = sample, shape

    def whole(self) -> torch.Tensor:
        count = 1
        for n in self.shape:
            count *= n
        return self.sample.repeat(-(-count // self.sample.numel()))[:count].view(self.shape)
