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
import types
import typing

import torch
import torch._C._functorch as _wrapping

from torchsleuth import source
from torchsleuth.capture.axes import COUNTS, added, followed, joined
from torchsleuth.capture.before_the_log import made_before_the_log
from torchsleuth.capture.contexts import device_context
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.evaluate import UNKNOWN, plain_attribute
from torchsleuth.capture.failure import log_ran_to_the_end, place_at
from torchsleuth.capture.loaders import Loaders
from torchsleuth.capture.reckoning import Agreed
from torchsleuth.capture.trails import mark_of
from torchsleuth.evidence import Place
from torchsleuth.evidence_forward import Made, SizeOrigin
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of
from torchsleuth.record.oplog import Mark, Operation
from torchsleuth.uncollected import uncollected

if typing.TYPE_CHECKING:
    from torchsleuth.capture.failure import Failure

_MOST_STEPS = 200
_MOST_CHAIN = 6
_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})  # a transposed one undoes what another has done to the size
_SIDE_BY_SIDE = frozenset({"add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "lerp", "cat", "concat", "stack"})
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_PICKS = frozenset({"__getitem__", "index", "index_select", "gather", "embedding", "take", "take_along_dim"})

class Origins:
    def __init__(self, failure: Failure) -> None:
        self._failure = failure
        self._crash = failure.crash
        self.definitions = Definitions(failure)
        self.loaders = Loaders(failure, self.definitions)
        self._limit = failure.operation.index if failure.operation is not None else self._end_of_log()

    @property
    def limit(self) -> int | None:
        """Entries of the log from this one on came after the failure."""
        return self._limit

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
        with uncollected():
            for operation in self._crash.timeline.operations:
                for mark in operation.results:
                    made = (operation, mark)
                    by_ident.setdefault(mark.ident, []).append(made)
                    if mark.storage:
                        by_storage.setdefault(mark.storage, []).append(made)
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
        sample = self.loaders.sample(operation) if size is None else None
        if sample is not None:  # not the loop over the loader, in which torch has joined the samples
            return sample
        place = place_at(operation.code, operation.lasti, Known.OBSERVED, via)
        if place is None:
            return None
        word = operation.name.strip("_") if operation.name not in ("__getitem__", "__setitem__") else "index"
        given = None
        if size is not None and origin_of(operation.user_code) is Origin.USER:
            # A library's own `nn.Linear(config.hidden_size, config.num_labels)` tells which entry it took.
            given = self._given(operation.stack, size, axis, operation) if via is not None and operation.stack else None
            given = given or self._given(_callers(operation), size, axis, operation)
        return Made(word, place, given=given)

    def _given(self, stack: typing.Sequence, size: int, axis: int | None, operation: Operation) -> Made | None:
        """Where a call was given a size: the caller's expressions; for the size of another tensor, where that one has it from."""
        library = operation.stack[: len(operation.stack) - len(stack)]
        found = self.definitions.given_size(stack, size, axis, bool(operation.operands), self._names_in(library) if library else None)
        asked = found or self.definitions.size_asked_for(stack, axis)  # `torch.arange(len(ids))`
        sized = self.definitions.sized(asked) if asked is not None else None
        if sized is not None and self._limit is not None:
            mark, own = mark_of(sized[0]), sized[1] % sized[0].dim()
            if mark is not None and mark.shape[own] == size and operation.index < self._limit:
                first, _, _, at = self._first_with(mark, own, operation.index)
                made = self.made_by(first, size, at) if first is not None and first is not operation else None
                if made is not None:
                    return made
        return self.definitions.source_made(found)

    def _names_in(self, stack: typing.Sequence[tuple[types.CodeType, int]]) -> frozenset[str]:
        """The attributes, variables and texts (`config["width"]`) of the functions that ran, by all the names they have."""
        names = {name for code, _ in stack for name in (*code.co_names, *code.co_varnames, *code.co_consts) if isinstance(name, str)}
        return frozenset(names | {self._aliases[name] for name in names & self._aliases.keys()})

    @functools.cached_property
    def _aliases(self) -> dict[str, str]:
        """transformers: what a model reads as `config.hidden_size` may be given as `n_embd`."""
        configs = (plain_attribute(locals_of(entry.frame).get("self"), "config") for entry in self._failure.entries)
        maps = (plain_attribute(type(config), "attribute_map") for config in configs if config is not UNKNOWN)
        return next((dict(found) for found in maps if isinstance(found, dict)), {})

    def is_batch(self, operation: Operation) -> bool:
        """Whether torch has joined the samples of a DataLoader by this call."""
        return self.loaders.loop_of(operation) is not None

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

    def formed(self, mark: Mark) -> Made | None:
        """The call that gave a tensor its shape: none of its operands has that already, or it picked elements of one."""
        before, last = self._limit, None
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                break
            last = found[0]
            same = next((operand for operand in last.operands if operand.shape == mark.shape), None)
            if same is None or last.name in _PICKS:
                break
            mark, before = same, last.index
        return self.made_by(last) if last is not None else None

    def input(self, mark: Mark) -> tuple[Made | None, tuple[SizeOrigin, ...]]:
        """The far end of that chain: the call that gave what the first layer was given its last size, or that made, of no other
        tensor, what all of it was computed from; and where that has its sizes from. None where the log does not reach so far."""
        before, entered = self._limit, None
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            following = [operand for operand in found[0].operands if not (operand.is_leaf and operand.requires_grad)] if found is not None else []
            if found is None or not following:
                break
            if len(following) < len(found[0].operands) and len(following[0].shape) > 2:
                entered = following[0], found[0].index
            mark, before = following[0], found[0].index
        else:
            return None, ()
        first, limit = entered or (mark, before)
        origins = []
        for axis, size in enumerate(first.shape):
            operation, complete, _, own = self._first_with(first, axis, limit)
            made = self.made_by(operation, size, own) if operation is not None and complete else None
            origins += [SizeOrigin(axis, size, made)] if made is not None else []
        last = next((origin.made for origin in origins if origin.axis == len(first.shape) - 1), None)
        return (last or self.made_by(found[0]) if found is not None else last), tuple(origins)

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

    def size(self, mark: Mark, axis: int, before: int | None = None) -> Made | None:
        """The call in which this size first appeared at the axis."""
        last, complete, first, own = self._first_with(mark, axis, self._limit if before is None else before)
        made = self.made_by(last, mark.shape[axis], own) if last is not None else None
        older = self._before_the_log(last, first) if last is not None and not complete else None
        if older is not None:
            return older
        loader, words = self.loaders.made(last, own, mark.shape[axis]) if last is not None else (None, "")
        if loader is not None:
            self.loaders.smaller_batch = words or self.loaders.smaller_batch
            return loader
        if made is not None and last is not None and made.given is None:
            made = dataclasses.replace(made, given=self._layer_behind(last, first, own) or self._mask_behind(last, first) or self._convolution_behind(last))
        return made if made is None or complete else Made(made.operation, made.place, False, made.given)

    def _before_the_log(self, operation: Operation, operand: Mark) -> Made | None:
        """For an operand that came into being unseen; for a sample of a batch what the dataset returned."""
        return made_before_the_log(self._failure, self.definitions, operation, operand) or self.loaders.sample(operation)

    def _layer_behind(self, operation: Operation, result: Mark, axis: int) -> Made | None:
        """A recurrent layer's features are its hidden size, once for each direction, and its states one for each layer and direction: its
        constructor was given that."""
        if operation.name not in _RECURRENT or axis not in (0, len(result.shape) - 1):
            return None
        if axis == 0:  # of the state, one for each layer and direction
            is_state = any(made.ident == result.ident for made in operation.results[1:])
            weight = next((operand for operand in operation.operands if operand.is_leaf and operand.requires_grad), None)
            return self.of_parameter(weight) if is_state and weight is not None else None
        for operand in operation.operands:
            if operand.is_leaf and operand.requires_grad and len(operand.shape) == 2 and operand.shape[0] in (k * operand.shape[1] for k in (1, 3, 4)):
                if result.shape[axis] in (operand.shape[1], 2 * operand.shape[1]):
                    return self.of_parameter(operand, operand.shape[1], 1)
        return None

    def _convolution_behind(self, operation: Operation) -> Made | None:
        """`self.conv(x) + x`: the size came about in the function that failed, by the stride, the padding and the kernel of a layer."""
        failed = self._failure.operation
        if operation.name not in _CONVOLUTIONS or self._failure.program.code is not operation.user_code or failed is None or failed.name.strip("_") not in _SIDE_BY_SIDE:
            return None
        weight = next((operand for operand in operation.operands if operand.is_leaf and operand.requires_grad), None)
        made = self.of_parameter(weight) if weight is not None else None
        return dataclasses.replace(made, operation="layer", given=None) if made is not None else None

    def _mask_behind(self, operation: Operation, result: Mark) -> Made | None:
        """`x[mask]` that leaves nothing: where the mask was made, of which no element is true."""
        if operation.name not in ("__getitem__", "masked_select") or 0 not in result.shape:
            return None
        masks = [operand for operand in operation.operands if operand.dtype is torch.bool and operand is not operation.operands[0]]
        made = self.tensor(masks[0], operation.index) if len(masks) == 1 and 0 not in masks[0].shape else None
        return dataclasses.replace(made, operation="mask", given=None) if made is not None else None

    def size_origin(self, mark: Mark, axis: int) -> SizeOrigin | None:
        """The same, with the dimensions that a view has joined, or the tensors that `cat` has."""
        made = self.size(mark, axis)
        last, _, result, own = self._first_with(mark, axis, self._limit)
        if made is None or last is None:
            return SizeOrigin(axis, mark.shape[axis], made) if made is not None else None
        parts, terms = (self._each(last, find(last, result, own)) for find in (joined, added))
        return SizeOrigin(axis, mark.shape[axis], made, parts, terms)

    def _each(self, operation: Operation, of: list[tuple[Mark, int]]) -> tuple[SizeOrigin, ...]:
        """Where operands of a call have their sizes from; nothing where that is not known of all."""
        found = []
        for operand, axis in of:
            first, complete, result, at = self._first_with(operand, axis, operation.index)
            made = self.made_by(first, operand.shape[axis], at) if first is not None else None
            if made is None or first is None:
                return ()
            loader, words = self.loaders.made(first, at, operand.shape[axis])
            if loader is not None:
                self.loaders.smaller_batch, made = words or self.loaders.smaller_batch, loader
            elif made.given is None:
                made = dataclasses.replace(made, given=self._layer_behind(first, result, at))
            found.append(SizeOrigin(axis, operand.shape[axis], made if complete else dataclasses.replace(made, complete=False)))
        return tuple(found)

    def _first_with(self, mark: Mark, axis: int, before: int | None) -> tuple[Operation | None, bool, Mark, int]:
        """The call in which a size first appeared, whether the log reaches back to it, and what and where it is there."""
        last = None
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                mapped = self._mapped(mark, axis)
                if mapped is None:
                    return last, last is None, mark, axis
                mark, axis = mapped
                continue
            last, mark = found
            following = followed(last, mark, axis)
            if following is None or self._made_its_state(last, following[0]):
                break
            mark, axis = following
            before = last.index
        return last, True, mark, axis

    def _mapped(self, mark: Mark, axis: int) -> tuple[Mark, int] | None:
        """What `vmap` and `grad` hand to a function is a tensor around the one they were given, with or without a dimension more."""
        named = self._crash.names.by_id(mark.ident)
        if named is None or tuple(named.tensor.shape) != mark.shape or not _wrapping.is_functorch_wrapped_tensor(named.tensor):
            return None
        dimension, inner = _wrapping.maybe_get_bdim(named.tensor), mark_of(_wrapping.get_unwrapped(named.tensor))
        return (inner, axis + (0 <= dimension <= axis)) if inner is not None else None

    def _made_its_state(self, operation: Operation, state: Mark) -> bool:
        """A recurrent layer that was given no state makes one, of its own sizes."""
        made = self.producer(state, operation.index) if operation.name in _RECURRENT else None
        return made is not None and (made[0].user_code, made[0].user_lasti) == (operation.user_code, operation.user_lasti)

    def property(self, mark: Mark, what: str) -> Made | None:
        """The call in which this dtype (or device) first appeared: no operand before it had the same."""
        before, last, complete = self._limit, None, True
        wanted = getattr(mark, what)
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                older = self._before_the_log(last, mark) if last is not None else None
                if older is not None:
                    return older
                complete = False
                break
            last, _ = found
            same = [operand for operand in last.operands if getattr(operand, what) == wanted]
            if what == "dtype" and last.name in COUNTS:
                break
            if not same or len(same) < len(last.operands) and what == "dtype" and last.name in ("to", "type", "type_as"):
                break
            mark, before = same[0], last.index
        made = self._made_on(last) if last is not None and what == "device" else self.made_by(last) if last is not None else None
        # That one had it from a tensor that came into being unseen.
        return dataclasses.replace(made, complete=False) if made is not None and not complete and what == "dtype" and made.operation == "index" else made

    def promoted(self, mark: Mark) -> Made | None:
        """The call in which a floating dtype won over another one: `half + table` of a table in float32."""
        before = self._limit
        for _ in range(_MOST_STEPS):
            found = self.producer(mark, before)
            if found is None:
                return None
            operation, _ = found
            same = [operand for operand in operation.operands if operand.dtype == mark.dtype]
            if not same or operation.name in COUNTS or operation.name in ("to", "type", "type_as"):
                return None
            if any(other.dtype.is_floating_point and other.shape and other.dtype != mark.dtype for other in operation.operands):
                return self.made_by(operation)
            mark, before = same[0], operation.index
        return None

    def _made_on(self, operation: Operation) -> Made | None:
        """The call, and the `with torch.device(…)` around it that chose the device."""
        made, around = self.made_by(operation), device_context(operation.stack)
        return dataclasses.replace(made, given=around) if made is not None and around is not None else made

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
        if operation is not None and axis is not None and origin_of(operation.user_code) is Origin.USER:
            # `torch.triu(torch.ones(n, n))`, `nn.Parameter(torch.randn(n, d) * 0.02)`: the size is older than the tensor.
            made = next(made for made in operation.results if (made.storage, made.shape) == (mark.storage, mark.shape))
            first, complete, _, own = self._first_with(made, axis, operation.index + 1)
            operation, axis = (first, own) if first is not None and complete else (operation, axis)
        return self.made_by(operation, size, axis) if operation is not None else None

    def constants_behind(self, mark: Mark, size: int, keyword: str, agreed: Agreed) -> tuple[list[Made], list[int], int | None]:
        """What sets the numbers of which a layer's first argument was computed, but those of factors or terms that are agreed on; and the
        terms of the other side that are not in the sum; and which size of the input would fit in place of the one number. `mark`: a parameter of the layer."""
        operation = self._maker(mark)
        if operation is None or origin_of(operation.user_code) is not Origin.USER:
            return [], [], None
        return self.definitions.constants_behind(_callers(operation), size, keyword, agreed)

    def device_of_parameter(self, mark: Mark) -> Made | None:
        operation = self._maker(mark)
        return self._made_on(operation) if operation is not None else None

    def _maker(self, mark: Mark) -> Operation | None:
        for operation, made in reversed(self._by_storage.get(mark.storage, []) if mark.storage else []):
            if made.shape == mark.shape and made.dtype == mark.dtype:
                if not any(operand.storage == mark.storage for operand in operation.operands):  # no view or write of it
                    return operation
        return None


def _callers(operation: Operation) -> tuple[tuple[types.CodeType, int], ...]:
    """The program's frames from the user's call on outwards, as far as the log has noted them."""
    here = (operation.user_code, operation.user_lasti)
    return operation.stack[operation.stack.index(here) :] if here in operation.stack else (here,)


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
