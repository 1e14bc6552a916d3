"""Where NaN or infinity in an operand came from: weights that hold it, data that does, or the call that made it.

From the operand's expression back along names and callers, as long as what an expression is computed from is not finite
either. The last one is computed again, layers of the model included, and its first call that makes NaN is named. What runs
again leaves no trace (`again/`).
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import types
import typing

import torch
from torch.overrides import TorchFunctionMode

from torchsleuth import source
from torchsleuth.again.kept import untouched
from torchsleuth.again.undefined import SINGULAR, may_make_nan, why_undefined
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.evaluate import UNKNOWN, Evaluator
from torchsleuth.capture.failure import Entry, place_at
from torchsleuth.capture.operands import Gathering, Raw
from torchsleuth.capture.paths import Paths
from torchsleuth.capture.trails import mark_of
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.capture.value_origins import ValueOrigins
from torchsleuth.evidence_forward import BadValue, Made, NotFinite, Operand
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.tensors import storage_of
from torchsleuth.record.oplog import Mark

# What torch says of values, as opposed to shapes and types.
_ABOUT_VALUES = re.compile(
    r"probability tensor contains|satisfy the constraint|within the support|between 0 and 1|p_in >= 0|non-finite|failed to converge|"
    r"sum of probabilities|is not finite|positive-definite"
)
_MOST_STEPS = 12
_MOST_CALLS = 400  # of the log
_MOST_ELEMENTS = 20_000_000  # of a tensor that is looked at, and of the arguments of a call that is made again


def with_causes(gathering: Gathering, operands: typing.Sequence[Operand], message: str) -> tuple[Operand, ...]:
    """The operands; those that hold NaN or infinity with where that came from, if the error is about values."""
    if not _ABOUT_VALUES.search(message):
        return tuple(operands)
    found = []
    for operand, raw in zip(operands, gathering.raws):
        cause = None
        known = raw.tensor is None or raw.recomputed or spoilt(raw.tensor)  # what is gone may be computed again
        if known and raw.node is not None and raw.entry is not None and raw.element is None:
            cause = _Search(gathering).cause(raw)
        found.append(dataclasses.replace(operand, not_finite=cause) if cause is not None else operand)
    return tuple(found)


def spoilt(value: object) -> bool:
    """A tensor with NaN or infinity in it, as far as that can be read."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter) or value.numel() > _MOST_ELEMENTS:
        return False
    try:
        return value.is_floating_point() and not bool(value.detach().isfinite().all())
    except Exception:
        return False


def _has_nan(value: object) -> bool:
    return spoilt(value) and bool(value.detach().isnan().any())  # type: ignore[attr-defined]


class _Found(typing.NamedTuple):
    result: NotFinite
    entry: Entry
    node: ast.AST  # the expression at which the search ended


class _Search:
    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._failure = gathering.failure
        self._definitions: Definitions = gathering.origins.definitions
        self._paths: Paths = gathering.paths

    def cause(self, raw: Raw) -> NotFinite | None:
        if raw.entry is None or raw.node is None:
            return None
        found = self._follow(raw.entry, raw.node, _has_nan if raw.live is None or _has_nan(raw.live) else spoilt, raw.mark)
        if found is None or found.result.kind != "made" or found.result.what != "NaN" or found.result.infinite is not None:
            return found.result if found is not None else None
        part = self._part(found.entry, found.node, spoilt)
        before = self._follow(found.entry, part, spoilt, None) if part is not None else None  # infinity, of which NaN was made
        if before is None or before.result.kind != "made":
            return found.result
        return dataclasses.replace(found.result, infinite=before.result.made, infinite_why=before.result.why)

    def _follow(self, entry: Entry, node: ast.AST, is_bad: typing.Callable[[object], bool], mark: Mark | None) -> _Found | None:
        """Back from an expression whose value is bad, as long as what it is computed from is."""
        first, held = node, None  # the last variable that is known to hold it
        for _ in range(_MOST_STEPS):
            if isinstance(node, ast.Name):
                held = (entry, node) if is_bad(entry.evaluator.value(node)) else held
                step = self._definitions.step(entry, node)
                if step is None or self._is_loop(*step) or not self._still_holds(*step):
                    break
                entry, node = step
                continue
            part = self._part(entry, node, is_bad)
            if part is None:
                result = self._weights(entry, node) or self._made(entry, node, is_bad is _has_nan)
                if result is not None:
                    return _Found(result, entry, node)
                break
            held = (entry, part)
            if isinstance(part, ast.Attribute) or part is node:
                break
            node = part
        if held is not None:
            mark = mark_of(held[0].evaluator.value(held[1]))
        result = (self._suspected(mark) if is_bad is _has_nan else None) or (self._given(*held) if held is not None and held[1] is not first else None)
        return _Found(result, entry, node) if result is not None else None

    def _suspected(self, mark: Mark | None) -> NotFinite | None:
        """By the log: the one call behind the tensor that can make NaN of finite numbers."""
        origins = self._gathering.origins
        if mark is None or not origins.log_reaches:
            return None
        pending, seen, found = [(mark, origins.limit)], 0, {}
        while pending and seen < _MOST_CALLS:
            seen += 1
            current, before = pending.pop()
            producer = origins.producer(current, before)
            if producer is None:
                continue
            operation = producer[0]
            if operation.writes:
                return None  # what was written may have been NaN
            if operation.operands and may_make_nan(operation.name.strip("_"), operation.operands[0].shape, producer[1].shape):
                found[operation.index] = operation
            else:
                pending += [(operand, operation.index) for operand in operation.operands if operand.dtype is not None and operand.dtype.is_floating_point]
        if len(found) != 1 or pending:
            return None
        (operation,) = found.values()
        made = origins.made_by(operation)
        return NotFinite("suspected", operation.name.strip("_"), made) if made is not None and not made.place.in_library else None

    def _is_loop(self, entry: Entry, node: ast.AST) -> bool:
        scope = function_node(entry.code)
        return scope is not None and any(value is node and kind.startswith("loop") for _, _, value, kind in bindings(scope))

    def _still_holds(self, entry: Entry, node: ast.AST) -> bool:
        """No name in it stands for something else now than when it was computed."""
        until = entry.statement.lineno if entry.statement is not None else 0
        scope = function_node(entry.code)
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        first = getattr(node, "lineno", 0)
        return scope is not None and not any(name in names and first <= statement.lineno < until for name, statement, _, _ in bindings(scope))

    def _part(self, entry: Entry, node: ast.AST, is_bad: typing.Callable[[object], bool]) -> ast.AST | None:
        """A variable or attribute in the expression that holds such numbers already."""
        for part in ast.walk(node):
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load) and is_bad(entry.evaluator.value(part)):
                return part
        return None

    def _given(self, entry: Entry, node: ast.AST) -> NotFinite | None:
        tensor = entry.evaluator.value(node)
        if not isinstance(tensor, torch.Tensor):
            return None
        made = self._written(tensor) or self._defined(entry, node)
        return _counted("given", tensor.detach(), ast.unparse(node), made)

    def _defined(self, entry: Entry, node: ast.AST) -> Made | None:
        """By syntax; not where that gives finite numbers: something was written there since."""
        step = self._definitions.step(entry, node)
        value = step[0].evaluator.value(step[1]) if step is not None else UNKNOWN
        if isinstance(value, torch.Tensor) and not spoilt(value):
            return None
        return self._definitions.made(entry, node) or self._here(entry, node, operation_word(node))

    def _written(self, tensor: torch.Tensor) -> Made | None:
        """By the log: what put the first of them there."""
        origins, mark, bad = self._gathering.origins, mark_of(tensor), ~tensor.detach().isfinite()
        if mark is None or not origins.log_reaches:
            return None
        first = tuple(bad.nonzero()[0].tolist())
        return ValueOrigins(self._failure, origins).value(mark, BadValue(first, float(tensor.detach()[first])), lambda mark: None)

    def _weights(self, entry: Entry, node: ast.AST) -> NotFinite | None:
        """Parameters of the layers that the expression calls."""
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.end_lineno, call.end_col_offset)):  # as they are evaluated
            module = _module_called(entry.evaluator, call)
            for name, tensor in [*module.named_parameters(), *module.named_buffers()] if module is not None else ():
                if not spoilt(tensor):
                    continue
                everything = list(module.parameters())  # type: ignore[union-attr]
                path = self._paths.modules.get(id(module), "") or ast.unparse(call.func)
                found = _counted("weights", tensor.detach(), f"{path}.{name}", None)
                others = sum(spoilt(parameter) for parameter in everything)
                return dataclasses.replace(found, others=(others, len(everything)), gradient=spoilt(tensor.grad), made=self._writer(tensor))
        return None

    def _writer(self, tensor: torch.Tensor) -> Made | None:
        """The last call that the log has seen write into it: an optimizer's step."""
        storage = storage_of(tensor)
        for operation in reversed(self._failure.crash.timeline.operations):
            if any(operation.operands[write.operand].storage == storage for write in operation.writes) and origin_of(operation.user_code) is Origin.USER:
                place = place_at(operation.user_code, operation.user_lasti)
                return Made(operation.name, place) if place is not None else None
        return None

    def _made(self, entry: Entry, node: ast.AST, nan: bool) -> NotFinite | None:
        again = _Again(entry.frame)
        modules = {id(module): module for part in ast.walk(node) if isinstance(part, ast.Call) and (module := _module_called(entry.evaluator, part)) is not None}
        kept = torch.nn.ModuleList(modules.values()) if modules else torch.nn.Module()
        with untouched(kept), _FirstNan(again) as watch:
            again.value(node)
        if not nan and watch.infinite is not None:
            made = self._there(entry, watch.infinite, watch.infinite_name)
            return NotFinite("made", watch.infinite_name, made, watch.infinite_why, what="infinity") if made is not None else None
        if watch.name == "" or not nan:
            return None
        made = self._there(entry, watch.made, watch.name)
        before = self._there(entry, watch.infinite, watch.infinite_name) if watch.infinite is not None else None
        if made is None:
            return None
        return NotFinite("made", watch.name, made, watch.why, infinite=before, infinite_why=watch.infinite_why)

    def _there(self, entry: Entry, where: _Where | None, name: str) -> Made | None:
        if where is None:
            return None
        place = source.place_of_node(entry.code, where, Known.RECOMPUTED) if isinstance(where, ast.AST) else place_at(*where, known=Known.RECOMPUTED)
        return Made(name, place) if place is not None else None

    def _here(self, entry: Entry, node: ast.AST, word: str) -> Made | None:
        place = source.place_of_node(entry.code, node, Known.OBSERVED)
        return Made(word, place) if place is not None else None


_Where = typing.Union[ast.AST, tuple[types.CodeType, int]]  # an expression of the live frame, or an instruction of a function it called


def _counted(kind: str, tensor: torch.Tensor, name: str, made: Made | None) -> NotFinite:
    bad = ~tensor.isfinite()
    what = "NaN" if bool(tensor.isnan().any()) else "infinity"
    return NotFinite(kind, "", made, "", name, what, int(bad.sum()), bad.numel(), tuple(bad.nonzero()[0].tolist()))


def _module_called(evaluator: Evaluator, call: ast.Call) -> torch.nn.Module | None:
    """`self.net(x)`, and `self.net.encode(x)`: the module whose code runs."""
    called = evaluator.value(call.func)
    if isinstance(called, torch.nn.Module):
        return called
    owner = evaluator.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
    is_method = isinstance(owner, torch.nn.Module) and isinstance(getattr(type(owner), call.func.attr, None), types.FunctionType)  # type: ignore[attr-defined]
    return owner if is_method else None


class _Again(Evaluator):
    """Computes an expression of a live frame again; modules and their methods are called, too."""

    def __init__(self, frame: types.FrameType) -> None:
        super().__init__(frame)
        self.nodes: list[ast.AST] = []

    def _value(self, node: ast.AST) -> typing.Any:
        self.nodes.append(node)
        try:
            return super()._value(node)
        finally:
            self.nodes.pop()

    def _compute(self, function: typing.Callable, positional: tuple, named: dict, tensors: typing.Sequence, shape_only: bool = False) -> typing.Any:
        return super()._compute(function, positional, named, tensors)  # drawn numbers, too: `untouched` puts the generators back

    def _call(self, node: ast.Call) -> typing.Any:
        module = _module_called(self, node)
        if module is None:
            return super()._call(node)
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(keyword.arg is None for keyword in node.keywords):
            return UNKNOWN
        args = [self._value(argument) for argument in node.args]
        kwargs = {str(keyword.arg): self._value(keyword.value) for keyword in node.keywords}
        if any(value is UNKNOWN for value in (*args, *kwargs.values())):
            return UNKNOWN
        called = module if self._value(node.func) is module else getattr(module, node.func.attr)  # type: ignore[attr-defined]
        return called(*args, **kwargs)


class _FirstNan(TorchFunctionMode):
    """The first call whose result holds NaN although nothing that it was given does, and the first that made infinity before."""

    def __init__(self, again: _Again) -> None:
        super().__init__()
        self._again = again
        self.name = self.why = self.infinite_name = self.infinite_why = ""
        self.made: _Where | None = None
        self.infinite: _Where | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: A002 (torch's own name)
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self.name and isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel() <= _MOST_ELEMENTS:
            self._look(getattr(func, "__name__", ""), args, kwargs, result)
        return result

    def _look(self, name: str, args: tuple, kwargs: dict, result: torch.Tensor) -> None:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.is_floating_point()]
        if bool(result.isnan().any()) and not any(bool(tensor.isnan().any()) for tensor in given):
            self.name, self.why = name.strip("_"), why_undefined(name, args, kwargs, tuple(result.shape))
            self.made = self._where()
            if not any(bool(tensor.isinf().any()) for tensor in given):
                self.infinite = None
        elif self.infinite is None and bool(result.isinf().any()) and not any(bool(tensor.isinf().any()) for tensor in given):
            self.infinite, self.infinite_name = self._where(), name.strip("_")
            self.infinite_why = why_undefined(name, args, kwargs, tuple(result.shape)) if name in SINGULAR else ""

    def _where(self) -> _Where | None:
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code is _VALUE:  # nothing of the program's own is in between
                return next((node for node in reversed(self._again.nodes) if hasattr(node, "lineno")), None)
            if origin_of(frame.f_code).is_program:
                return frame.f_code, frame.f_lasti
            frame = frame.f_back
        return None


_VALUE = _Again._value.__code__
