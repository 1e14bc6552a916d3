"""Where a value in a tensor came from: the call that computed it or wrote it, by the operation log, and what plain Python
had put into that call.

A value is followed through operations that only carry values (views, joins, indexing) to the call that made it. Tensors
that still live tell which of several operands holds it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.finished import Frame, frame_at, frames_of, node_in
from torchsleuth.capture.live_values import in_objects
from torchsleuth.capture.number_sources import Source
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.values import COPIES, Values, only_holds, value_argument
from torchsleuth.evidence_forward import BadValue, Made
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Mark, Operation

_MOST_STEPS = 200

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
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
VALUE_COPIES = _CARRIES - {"pad", "where", "clamp", "masked_fill", "index_put", "scatter"}


_CHOOSES = frozenset({"argmax", "argmin", "topk", "max", "min", "multinomial"})  # they return positions in what they are given

# The first bad value of a tensor that still lives: False where it holds none, None where that cannot be told.
Locate = typing.Callable[[Mark], BadValue | typing.Literal[False] | None]


Held = tuple[Entry, ast.AST, BadValue]  # an expression of a live frame, and a value of its tensor


class ValueOrigins:
    def __init__(self, failure: Failure, origins: Origins) -> None:
        self._failure = failure
        self._origins = origins

    def value(self, mark: Mark, first: BadValue, locate: Locate, held: Held | None = None) -> Made | None:
        """Where a value came from: the last write into the memory, or the call that computed it, or what that was given."""
        return without_copy(self._value(mark, first, locate, held))

    def _value(self, mark: Mark, first: BadValue, locate: Locate, held: Held | None) -> Made | None:
        before, last, position = self._origins.limit, None, first.position
        result: Mark | None = None
        for _ in range(_MOST_STEPS):
            found = self._origins.producer(mark, before)
            written = self._last_write(mark, found[0].index if found else 0, before, position)
            if written is not None:
                assigned = _assigned_from(written, mark, position)
                if assigned is None:
                    return self._made(written, None, first.value)
                last, result, before = written, None, written.index
                mark, position = assigned
                continue
            if found is None:
                break
            last, result = found
            if last.name not in _CARRIES and last.name != "pad_sequence" or not last.operands:
                break
            exact = carried_from(last, mark, position) if position is not None else None
            if exact is not None and last.name in (*VALUE_COPIES, "pad_sequence"):
                mark, position = exact
                before = last.index
                continue
            if last.name == "pad_sequence":
                break  # the padding itself, or nobody can tell
            holders = last.operands[1:] if last.name == "where" and last.operands[0].dtype is torch.bool else last.operands  # not the condition
            alike = [operand for operand in holders if operand.dtype == holders[0].dtype] if holders else []
            located = [(operand, locate(operand)) for operand in alike]
            bad = [(operand, where) for operand, where in located if where]
            if bad:
                mark, first = bad[0]
                position = first.position
            elif last.name not in VALUE_COPIES or all(where is False for _, where in located):
                position = None
                break  # it made the value itself, or nobody can tell
            elif len(alike) > 1 and last.name in JOINS:
                position = None
                break
            else:
                mark, position = last.operands[0], None
            before = last.index
        made = self._made(last, position, first.value, result) if last is not None else None
        if held is not None and (last is None or _is_torchs_own(last) or self._origins.is_batch(last)):
            return self.by_syntax(*held) or made
        return made

    def _made(self, operation: Operation, position: tuple[int, ...] | None, number: float, result: Mark | None = None) -> Made | None:
        made = self._origins.made_by(operation)
        if made is not None and operation.name in _CHOOSES and result is not None and not result.dtype.is_floating_point:
            return dataclasses.replace(made, given=self._searched(operation))
        if made is not None and operation.name == "arange" and operation.results:
            return self._counted(operation) or made
        if made is None or type(number) is not int or origin_of(operation.user_code) is not Origin.USER:
            return made
        here = (operation.user_code, operation.user_lasti)
        stack = operation.stack[operation.stack.index(here) :] if here in operation.stack else (here,)
        call, frame = node_in(*stack[0]), frames_of(stack)
        if call is None or frame is None:
            return made
        if len(stack) == 1 and not isinstance(frame.scope, ast.Module):
            frame = frame_at(frame.filename, call, frame.name) or frame
        given = None
        if isinstance(call, ast.Call) and operation.results:
            given = value_argument(call, position if position is not None else (None,) * len(operation.results[0].shape))
        elif operation.name == "__setitem__" and 2 not in operation.arguments:  # a plain number is written, no tensor
            given = _assigned(frame.filename, call)
        found = self._values.follow(frame, given[0], given[1], number) if given is not None else None
        return dataclasses.replace(made, given=self._out_of(found, number)) if found is not None else made

    def _counted(self, operation: Operation) -> Made | None:
        """`torch.arange(length)` counts as far as it is long: with what gave it that number."""
        call = node_in(operation.user_code, operation.user_lasti)
        numbers = [argument for argument in call.args if not isinstance(argument, ast.Starred)] if isinstance(call, ast.Call) else []
        return self._origins.made_by(operation, operation.results[0].shape[0], 0) if len(numbers) == 1 else None

    def _searched(self, operation: Operation) -> Made | None:
        """The positions that `argmax`, `topk` and the like return go as far as the dimension they search is long: who set that,
        where a layer or a number did."""
        scores = next((operand for operand in operation.operands[:1] if operand.dtype.is_floating_point), None)
        axis = _searched_axis(scores.shape, operation.results[0].shape) if scores is not None and operation.results else None
        size = self._origins.size(scores, axis, operation.index) if scores is not None and axis is not None else None
        return size if size is not None and (size.given is not None or _is_layer(size)) else None

    def by_syntax(self, entry: Entry, node: ast.AST, first: BadValue) -> Made | None:
        """For a value that no call of the program's put into a tensor: from the expression that holds it, along the live frames."""
        stack = [(e.code, e.lasti) for e in reversed(self._failure.entries[: entry.position + 1]) if e.origin.is_program]
        frame = frames_of(stack)
        if frame is None or type(first.value) is not int:
            return None
        return self._out_of(self._values.follow(frame, node, first.position, first.value), first.value)

    def _out_of(self, found: Source | None, number: int) -> Made | None:
        """The far end of a value's trail; a list that it was lost in only passed it on."""
        made = self._origins.definitions.source_made(found)
        return dataclasses.replace(made, operation="copied" if only_holds(found.node, number) else "value") if found is not None and made is not None else None

    @functools.cached_property
    def _values(self) -> Values:
        return Values((entry.code.co_filename for entry in self._failure.entries if entry.origin is Origin.USER), self._live)

    def _live(self, frame: Frame, expression: ast.expr) -> list[object]:
        """What an expression of a method stands for in the live objects of its class."""
        return in_objects(self._failure.crash, frame.filename, frame.scope, expression)

    def carries_from(self, mark: Mark, ident: int) -> bool:
        """Whether the values of a tensor were carried over, unchanged, from the tensor with this identity."""
        pending, seen = [(mark, self._origins.limit)], 0
        while pending and seen < _MOST_STEPS:
            seen += 1
            current, before = pending.pop()
            if current.ident == ident:
                return True
            found = self._origins.producer(current, before)
            if found is not None and (found[0].name in _CARRIES or found[0].name == "pad_sequence"):
                pending += [(operand, found[0].index) for operand in found[0].operands]
        return False

    def _last_write(self, mark: Mark, after: int, before: int | None, position: tuple[int, ...] | None) -> Operation | None:
        if not mark.storage:
            return None
        for operation in reversed(self._failure.crash.timeline.operations):
            if before is not None and operation.index >= before:
                continue
            if operation.index <= after:
                return None
            for write in operation.writes:
                target = operation.operands[write.operand]
                if target.storage == mark.storage and _may_cover(operation, target, mark, position):
                    return operation
        return None


def _assigned(filename: str, target: ast.AST) -> tuple[ast.AST, tuple[()]] | None:
    """The right side of `ids[:, 0] = value`."""
    for statement in source.statements_at(filename, target.lineno):  # type: ignore[attr-defined]
        if isinstance(statement, ast.Assign) and (statement is target or target in statement.targets):
            return statement.value, ()
    return None


def _assigned_from(operation: Operation, mark: Mark, position: tuple[int, ...] | None) -> tuple[Mark, tuple[int, ...]] | None:
    """`out[row, :n] = ids` copies: the tensor on the right, and the place in it that this element of `mark` was copied from."""
    if operation.name != "__setitem__" or operation.arguments != (0, 2) or operation.index_used is None or position is None:
        return None
    if len(mark.strides) != len(position):
        return None
    given = operation.operands[1]
    region = _indexed(operation.operands[0], operation.index_used)
    if region is None or len(given.shape) > len(region[0]):
        return None
    shape, strides, offset = region
    cell = mark.offset + sum(i * stride for i, stride in zip(position, mark.strides))
    place = _place_in(mark._replace(shape=shape, strides=strides, offset=offset), cell)
    if place is None:
        return None
    own = place[len(shape) - len(given.shape) :]
    return given, tuple(0 if size == 1 else index for size, index in zip(given.shape, own))


def _is_layer(made: Made) -> bool:
    """`nn.Linear(16, 6)`: a constructor's name begins with a capital letter."""
    return re.match(r"(\w+\.)*[A-Z]\w*\(", made.place.source) is not None


def _searched_axis(scores: tuple[int, ...], found: tuple[int, ...]) -> int | None:
    """The one dimension that has become another, or has gone, from the scores to the positions found in them."""
    if len(found) == len(scores):
        axes = [axis for axis, (one, other) in enumerate(zip(scores, found)) if one != other]
    else:
        axes = [axis for axis in range(len(scores)) if scores[:axis] + scores[axis + 1 :] == found]
    return axes[0] if len(axes) == 1 else None


def _is_torchs_own(operation: Operation) -> bool:
    """torch's own code made the tensor of plain numbers, as a DataLoader does that joins the samples: no call of the program's."""
    call = node_in(operation.user_code, operation.user_lasti)
    name = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
    return not operation.operands and operation.name in ("tensor", "as_tensor") and name not in ("tensor", "as_tensor")


def carried_from(operation: Operation, result: Mark, position: tuple[int, ...]) -> tuple[Mark, tuple[int, ...]] | None:
    """The operand, and the place in it, that an element of a result was copied from; None where nobody can tell."""
    operands, first = operation.operands, operation.operands[0]
    if len(position) != len(result.shape):
        return None
    if operation.name == "pad_sequence":
        return _padded_from(operation, result, position)
    if operation.name == "stack":
        for axis in range(len(result.shape)):
            if result.shape[axis] == len(operands) and result.shape[:axis] + result.shape[axis + 1 :] == first.shape:
                twice = any(result.shape[other] == len(operands) and first.shape == result.shape[:other] + result.shape[other + 1 :]
                            for other in range(axis + 1, len(result.shape)))  # fmt: skip
                return None if twice else (operands[position[axis]], position[:axis] + position[axis + 1 :])
        return None
    if operation.name in JOINS:
        return _joined_from(operands, result, position)
    if result.storage and result.storage == first.storage and len(result.strides) == len(result.shape):
        cell = result.offset + sum(i * stride for i, stride in zip(position, result.strides))
        place = _place_in(first, cell)
        return (first, place) if place is not None else None
    if len(operands) > 1 or operation.name in ("__getitem__", "repeat", "flip", "roll", "sort", "unique", "masked_select", "repeat_interleave", "tile", "unfold"):
        return None
    if first.shape == result.shape and operation.name not in ("transpose", "t", "permute"):
        return first, position
    if operation.name in ("view", "reshape", "flatten", "unsqueeze", "squeeze", "ravel") and math.prod(first.shape) == math.prod(result.shape):
        flat = 0
        for index, size in zip(position, result.shape):
            flat = flat * size + index
        found: list[int] = []
        for size in reversed(first.shape):
            flat, index = divmod(flat, size)
            found.insert(0, index)
        return first, tuple(found)
    return None


def _joined_from(operands: tuple[Mark, ...], result: Mark, position: tuple[int, ...]) -> tuple[Mark, tuple[int, ...]] | None:
    """Along the one dimension in which the sizes of what was joined add up."""
    real = [operand for operand in operands if operand.shape != (0,)]
    if any(len(operand.shape) != len(result.shape) for operand in real) or not real:
        return None
    axes = [axis for axis, size in enumerate(result.shape) if sum(operand.shape[axis] for operand in real) == size]
    if len(axes) != 1:
        return (real[0], position) if len(real) == 1 else None
    axis, rest = axes[0], position[axes[0]]
    for operand in real:
        if rest < operand.shape[axis]:
            return operand, (*position[:axis], rest, *position[axis + 1 :])
        rest -= operand.shape[axis]
    return None


def _place_in(mark: Mark, cell: int) -> tuple[int, ...] | None:
    """The index at which a tensor reads a cell of its memory, where there is just one."""
    rest, found = cell - mark.offset, [0] * len(mark.shape)
    for axis in sorted(range(len(mark.shape)), key=lambda k: -mark.strides[k]):
        if mark.shape[axis] > 1 and mark.strides[axis] <= 0:
            return None
        if mark.shape[axis] > 1:
            found[axis], rest = divmod(rest, mark.strides[axis])
    return tuple(found) if rest == 0 and all(0 <= index < size for index, size in zip(found, mark.shape)) else None


def _padded_from(operation: Operation, mark: Mark, position: tuple[int, ...]) -> tuple[Mark, tuple[int, ...]] | None:
    """The sequence, and the place in it, that an element of `pad_sequence` was copied from; None for the padding itself."""
    samples, longest = operation.operands, max((item.shape[0] for item in operation.operands if item.shape), default=0)
    rows, columns = mark.shape[:2] == (len(samples), longest), mark.shape[:2] == (longest, len(samples))
    if rows and columns:
        rows = _says_batch_first(node_in(operation.user_code, operation.user_lasti)) is True
        columns = _says_batch_first(node_in(operation.user_code, operation.user_lasti)) is False
    if len(position) < 2 or rows == columns:
        return None  # batch or time first: where both fit nobody can tell
    sample, step = position[:2] if rows else position[1::-1]
    return (samples[sample], (step, *position[2:])) if step < samples[sample].shape[0] else None


def _says_batch_first(call: ast.AST | None) -> bool | None:
    """What is written in a call of `pad_sequence`; None where only a variable tells."""
    if not isinstance(call, ast.Call) or any(isinstance(argument, ast.Starred) for argument in call.args) or any(k.arg is None for k in call.keywords):
        return None
    given = next((k.value for k in call.keywords if k.arg == "batch_first"), call.args[1] if len(call.args) > 1 else ast.Constant(False))
    return given.value if isinstance(given, ast.Constant) and type(given.value) is bool else None


def without_copy(made: Made | None) -> Made | None:
    """`torch.tensor(rows)` holds the numbers it is given: where they come from is known, or they only pass there."""
    if made is None or made.operation not in COPIES:
        return made
    if made.given is not None:
        return made.given
    return dataclasses.replace(made, operation="copied") if not _writes_its_numbers(made) else made


def _writes_its_numbers(made: Made) -> bool:
    """`torch.tensor([0.5, 1.5])`."""
    try:
        call = ast.parse(made.place.source.strip(), mode="eval").body
    except SyntaxError:
        return False
    return isinstance(call, ast.Call) and not any(isinstance(node, (ast.Name, ast.Call)) for argument in call.args[:1] for node in ast.walk(argument))


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
