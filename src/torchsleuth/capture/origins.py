"""Where a tensor, one of its sizes, its dtype or a value in it came from: walks the operation log backwards.

Every logged call says which tensors went in and came out, so an operand leads to the call that made it, and that
call's operands further back. A size is followed through views, products and element-wise operations to the call
none of whose operands has it at the corresponding axis: there it first appeared. Where the log does not reach, the
autograd graph or the syntax of the frames may tell less exactly.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import gc
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.axes import COUNTS, followed, joined
from torchsleuth.capture.contexts import device_context
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import log_ran_to_the_end, place_at
from torchsleuth.capture.trails import mark_of
from torchsleuth.evidence import Place
from torchsleuth.evidence_forward import Made, SizeOrigin
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Mark, Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.failure import Failure

_MOST_STEPS = 200
_MOST_CHAIN = 6

# Operations whose result holds values of an operand unchanged: a bad value is older than they are.
_CARRIES = {
    "long", "int", "to", "clone", "contiguous", "view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "flatten",
    "permute", "transpose", "t", "T", "mT", "stack", "cat", "__getitem__", "index_select", "gather", "select", "narrow", "split",
    "chunk", "unbind", "detach", "data", "cpu", "cuda", "repeat", "pin_memory", "flip", "roll", "type", "short", "unfold",
    "view_as", "type_as", "masked_select", "sort", "hstack", "vstack", "concat", "swapaxes", "movedim", "take", "pad",
    "repeat_interleave", "tile", "requires_grad_", "index", "broadcast_to", "unique", "as_tensor", "where", "ravel", "clamp",
    "masked_fill", "index_put", "scatter", "alias",
}  # fmt: skip
# Of those, the ones that cannot bring in a value of their own.
VALUE_COPIES = _CARRIES - {"pad", "where", "clamp", "masked_fill", "index_put", "scatter"}


# The first bad position of a tensor that still lives: () where it holds none, None where that cannot be told.
Locate = typing.Callable[[Mark], tuple[int, ...] | None]


class Origins:
    def __init__(self, failure: Failure) -> None:
        self._failure = failure
        self._crash = failure.crash
        self.definitions = Definitions(failure)
        self._limit = failure.operation.index if failure.operation is not None else self._end_of_log()

    def _end_of_log(self) -> int | None:
        """For a failure that is no logged call (a check in Python), where the log went on to the end."""
        operations = self._crash.timeline.operations
        return operations[-1].index + 1 if operations and log_ran_to_the_end(self._crash) else None

    @property
    def log_reaches(self) -> bool:
        """The log saw the failing call, or ran to the end: identities in it are of this moment."""
        return self._limit is not None

    # -- the log --------------------------------------------------------------------------------

    @functools.cached_property
    def _index(self) -> tuple[dict[int, list[tuple[Operation, Mark]]], dict[int, list[tuple[Operation, Mark]]]]:
        """Who made what, by identity and by memory. One pass, and without the garbage collector looking at each step."""
        by_ident: dict[int, list[tuple[Operation, Mark]]] = {}
        by_storage: dict[int, list[tuple[Operation, Mark]]] = {}
        collecting = gc.isenabled()
        gc.disable()
        try:
            for operation in self._crash.timeline.operations:
                for mark in operation.results:
                    made = (operation, mark)
                    by_ident.setdefault(mark.ident, []).append(made)
                    if mark.storage:
                        by_storage.setdefault(mark.storage, []).append(made)
        finally:
            if collecting:
                gc.enable()
        return by_ident, by_storage

    @property
    def _by_ident(self) -> dict[int, list[tuple[Operation, Mark]]]:
        return self._index[0]

    @property
    def _by_storage(self) -> dict[int, list[tuple[Operation, Mark]]]:
        return self._index[1]

    def producer(self, mark: Mark, before: int | None) -> tuple[Operation, Mark] | None:
        """The call that made this tensor, and how it looked then."""
        for operation, made in reversed(self._by_ident.get(mark.ident, [])):
            if before is not None and operation.index >= before:
                continue
            if (made.storage == mark.storage or not made.storage or not mark.storage) and made.shape == mark.shape:
                if made.dtype == mark.dtype and not _returns_operand(operation, made):
                    return operation, made
                if made.dtype == mark.dtype:
                    continue  # an in-place call hands back the tensor it was given: that one is older
            break
        # nn.Parameter(data), x.data and the like make a new object of the same memory without a logged call.
        for operation, made in reversed(self._by_storage.get(mark.storage, [])) if mark.storage else ():
            if before is not None and operation.index >= before:
                continue
            if made.shape == mark.shape and made.strides == mark.strides and made.dtype == mark.dtype:
                if not _returns_operand(operation, made):
                    return operation, made
                continue
        return None

    def made_by(self, operation: Operation, size: int | None = None, axis: int | None = None) -> Made | None:
        """The expression of a logged call; for a size at an axis, also the caller's expression that gave the number."""
        via = None
        if operation.user_code is not operation.code and origin_of(operation.user_code) is Origin.USER:
            via = place_at(operation.user_code, operation.user_lasti)
        place = place_at(operation.code, operation.lasti, Known.OBSERVED, via)
        if place is None:
            return None
        word = operation.name.strip("_") if operation.name not in ("__getitem__", "__setitem__") else "index"
        given = None
        if size is not None and origin_of(operation.user_code) is Origin.USER:
            here = (operation.user_code, operation.user_lasti)
            stack = operation.stack[operation.stack.index(here) :] if here in operation.stack else (here,)
            given = self._given(stack, size, axis, operation)
        return Made(word, place, given=given)

    def _given(self, stack: typing.Sequence, size: int, axis: int | None, operation: Operation) -> Made | None:
        """Where a call was given a size: the caller's expressions; for the size of another tensor, where that one has it from."""
        found = self.definitions.given_size(stack, size, axis, bool(operation.operands))
        sized = self.definitions.sized(found) if found is not None else None
        if sized is not None and self._limit is not None:
            mark, own = mark_of(sized[0]), sized[1] % sized[0].dim()
            if mark is not None and mark.shape[own] == size and operation.index < self._limit:
                first, _, _, at = self._first_with(mark, own, operation.index)
                made = self.made_by(first, size, at) if first is not None and first is not operation else None
                if made is not None:
                    return made
        return self.definitions.source_made(found)

    # -- questions ------------------------------------------------------------------------------

    def tensor(self, mark: Mark, before: int | None = None) -> Made | None:
        before = self._limit if before is None else before
        found = self.producer(mark, before)
        return self.made_by(found[0]) if found else None

    def chain(self, mark: Mark) -> tuple[Made, ...]:
        """The calls behind a tensor, newest first, always along the first tensor operand that is no parameter."""
        made: list[Made] = []
        before = self._limit
        while len(made) < _MOST_CHAIN:
            found = self.producer(mark, before)
            if found is None:
                break
            operation, _ = found
            step = self.made_by(operation)
            if step is not None and (not made or made[-1].place.span != step.place.span):
                made.append(step)
            following = [operand for operand in operation.operands if not (operand.is_leaf and operand.requires_grad)]
            if not following:
                break
            mark, before = following[0], operation.index
        return tuple(made)

    def input(self, mark: Mark) -> Made | None:
        """The far end of that chain: the call that made, of no other tensor, what all of it was computed from; None where
        the log does not reach so far."""
        before = self._limit
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                return None
            following = [operand for operand in found[0].operands if not (operand.is_leaf and operand.requires_grad)]
            if not following:
                return self.made_by(found[0])
            mark, before = following[0], found[0].index
        return None

    def turned(self, mark: Mark) -> Made | None:
        """The call that was given memory in order and handed on a tensor that reads it in another one."""
        before = self._limit
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            operation = found[0] if found is not None else None
            if operation is None or not operation.operands or in_order(mark):
                return None
            loose = next((operand for operand in operation.operands if operand.shape and not in_order(operand)), None)
            if loose is None:
                return self.made_by(operation)
            mark, before = loose, operation.index
        return None

    def size(self, mark: Mark, axis: int) -> Made | None:
        """The call in which this size first appeared at the axis."""
        last, complete, _, own = self._first_with(mark, axis, self._limit)
        made = self.made_by(last, mark.shape[axis], own) if last is not None else None
        return made if made is None or complete else Made(made.operation, made.place, False, made.given)

    def size_origin(self, mark: Mark, axis: int) -> SizeOrigin | None:
        """The same, with the dimensions that a view has joined."""
        made = self.size(mark, axis)
        last, _, result, own = self._first_with(mark, axis, self._limit)
        parts = []
        for operand, k in joined(last, result, own) if last is not None else ():
            first, complete, _, at = self._first_with(operand, k, last.index)
            part = self.made_by(first, operand.shape[k], at) if first is not None else None
            if part is None:
                return SizeOrigin(axis, mark.shape[axis], made) if made is not None else None
            parts.append(SizeOrigin(k, operand.shape[k], part if complete else dataclasses.replace(part, complete=False)))
        return SizeOrigin(axis, mark.shape[axis], made, tuple(parts)) if made is not None else None

    def _first_with(self, mark: Mark, axis: int, before: int | None) -> tuple[Operation | None, bool, Mark, int]:
        """The call in which a size first appeared, whether the log reaches back to it, and what and where it is there."""
        last = None
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                return last, last is None, mark, axis
            last, mark = found
            following = followed(last, mark, axis)
            if following is None:
                break
            mark, axis = following
            before = last.index
        return last, True, mark, axis

    def property(self, mark: Mark, what: str) -> Made | None:
        """The call in which this dtype (or device) first appeared: no operand before it had the same."""
        before, last = self._limit, None
        wanted = getattr(mark, what)
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                break
            last, _ = found
            same = [operand for operand in last.operands if getattr(operand, what) == wanted]
            if what == "dtype" and last.name in COUNTS:
                break
            if not same or len(same) < len(last.operands) and what == "dtype" and last.name in ("to", "type", "type_as"):
                break
            mark, before = same[0], last.index
        return self._made_on(last) if last is not None and what == "device" else self.made_by(last) if last is not None else None

    def _made_on(self, operation: Operation) -> Made | None:
        """The call, and the `with torch.device(…)` around it that chose the device."""
        made, around = self.made_by(operation), device_context(operation.stack)
        return dataclasses.replace(made, given=around) if made is not None and around is not None else made

    def value(self, mark: Mark, position: tuple[int, ...] | None, locate: Locate) -> Made | None:
        """Where the value at this position came from: the last write into the memory, or the call that computed it."""
        before, last = self._limit, None
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            written = self._last_write(mark, found[0].index if found else 0, before, position)
            if written is not None:
                return self.made_by(written)
            if found is None:
                break
            last = found[0]
            if last.name == "pad_sequence" and position is not None:
                sample = _padded_from(last, mark, position)
                if sample is None:
                    break
                mark, position, before = *sample, last.index
                continue
            if last.name not in _CARRIES or not last.operands:
                break
            following = last.operands[0]
            alike = [operand for operand in last.operands if operand.dtype == following.dtype]
            located = [(operand, locate(operand)) for operand in alike]
            bad = [(operand, where) for operand, where in located if where]
            if bad:
                following, position = bad[0]
            elif last.name not in VALUE_COPIES or all(where == () for _, where in located):
                break  # it made the value itself, or nobody can tell
            elif following.storage != mark.storage or following.shape != mark.shape:
                position = None
            mark, before = following, last.index
        return self.made_by(last) if last is not None else None

    def carries_from(self, mark: Mark, ident: int) -> bool:
        """Whether the values of a tensor were carried over, unchanged, from the tensor with this identity."""
        pending, seen = [(mark, self._limit)], 0
        while pending and seen < _MOST_STEPS:
            seen += 1
            current, before = pending.pop()
            if current.ident == ident:
                return True
            found = self.producer(current, before)
            if found is not None and (found[0].name in _CARRIES or found[0].name == "pad_sequence"):
                pending += [(operand, found[0].index) for operand in found[0].operands]
        return False

    def _last_write(self, mark: Mark, after: int, before: int | None, position: tuple[int, ...] | None) -> Operation | None:
        if not mark.storage:
            return None
        for operation in reversed(self._crash.timeline.operations):
            if before is not None and operation.index >= before:
                continue
            if operation.index <= after:
                return None
            for write in operation.writes:
                target = operation.operands[write.operand]
                if target.storage == mark.storage and _may_cover(operation, target, mark, position):
                    return operation
        return None

    def of_live(self, tensor: torch.Tensor) -> Made | None:
        """Without the log: from the autograd node that made it, by the recorded lines."""
        node = tensor.grad_fn
        if node is None:
            return None
        place = self._crash.timeline.place_of_node(node)
        if place is None or self._is_a_number(place):
            return None
        from torchsleuth.probe.graph import operation_of

        return Made(operation_of(node.name()), place)

    def _is_a_number(self, place: Place) -> bool:
        """On a line with several operators syntax alone may point at arithmetic between numbers: no tensor came from that."""
        for entry in self._failure.entries:
            if source.display_name(entry.code.co_filename) != place.span.file:
                continue
            span = place.span
            node = source.expression_at(entry.code.co_filename, (span.line, span.column - 1, span.end_line, span.end_column - 1))
            if isinstance(node, ast.expr) and isinstance(entry.evaluator.value(node), (int, float)):
                return True
        return False

    def of_parameter(self, mark: Mark, size: int | None = None, axis: int | None = None) -> Made | None:
        """A parameter has lived since it was made, so its memory's newest entry in the log is its own, however old."""
        operation = self._maker(mark)
        return self.made_by(operation, size, axis) if operation is not None else None

    def device_of_parameter(self, mark: Mark) -> Made | None:
        operation = self._maker(mark)
        return self._made_on(operation) if operation is not None else None

    def _maker(self, mark: Mark) -> Operation | None:
        for operation, made in reversed(self._by_storage.get(mark.storage, []) if mark.storage else []):
            if made.shape == mark.shape and made.dtype == mark.dtype:
                if not any(operand.storage == mark.storage for operand in operation.operands):  # no view or write of it
                    return operation
        return None


def _padded_from(operation: Operation, mark: Mark, position: tuple[int, ...]) -> tuple[Mark, tuple[int, ...]] | None:
    """The sequence, and the place in it, that an element of `pad_sequence` was copied from; None for the padding itself."""
    samples, longest = operation.operands, max((item.shape[0] for item in operation.operands if item.shape), default=0)
    rows, columns = mark.shape[:2] == (len(samples), longest), mark.shape[:2] == (longest, len(samples))
    if len(position) < 2 or rows == columns:
        return None  # batch or time first: where both fit nobody can tell
    sample, step = position[:2] if rows else position[1::-1]
    return (samples[sample], (step, *position[2:])) if step < samples[sample].shape[0] else None


def in_order(mark: Mark) -> bool:
    """Contiguous, as far as the strides say."""
    expected = 1
    for size, stride in zip(reversed(mark.shape), reversed(mark.strides)):
        if size != 1 and stride != expected:
            return False
        expected *= max(size, 1)
    return True


def _returns_operand(operation: Operation, made: Mark) -> bool:
    """An in-place call (`x.normal_()`, `x.add_(y)`) or a no-op (`x.to(x.dtype)`) returns what it was given."""
    return any(operand.ident == made.ident and operand.shape == made.shape for operand in operation.operands)


def _may_cover(operation: Operation, target: Mark, mark: Mark, position: tuple[int, ...] | None) -> bool:
    """Whether a write through `target` may have touched the element at `position` of `mark`."""
    if position is None or len(mark.strides) != len(position):
        return True
    cell = mark.offset + sum(i * stride for i, stride in zip(position, mark.strides))
    if operation.name == "__setitem__" and operation.index_used is not None:
        region = _indexed(target, operation.index_used)
        if region is not None:
            return _contains(*region, cell)
    return _contains(target.shape, target.strides, target.offset, cell)


def _indexed(target: Mark, index: object) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    try:
        view = torch.empty_strided(target.shape, target.strides, device="meta")[index]  # type: ignore[index]
        return tuple(view.shape), view.stride(), target.offset + view.storage_offset()
    except Exception:
        return None


def _contains(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, cell: int) -> bool:
    rest = cell - offset
    for size, stride in sorted(zip(shape, strides), key=lambda pair: -pair[1]):
        if size == 0:
            return False
        if stride <= 0:
            continue
        steps = min(rest // stride, size - 1)
        if steps < 0:
            return False
        rest -= steps * stride
    return rest == 0
