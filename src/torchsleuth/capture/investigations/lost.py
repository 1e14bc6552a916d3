"""Where the gradient was lost: from a root without history back to the operations that cut it off.

With the operation log this is a walk over what was observed: an operation whose inputs required grad and whose
result does not is a cut. Values that pass through Python numbers or numpy leave the log; there the names in the
source lead on, within one function.
"""

from __future__ import annotations

import ast
import dataclasses
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.cuts_by_syntax import cuts_by_syntax
from torchsleuth.capture.freezing import frozen_at, frozen_by
from torchsleuth.capture.investigations.backward_root import made_at, offending_root, root_fact
from torchsleuth.capture.operand_sources import operand_name
from torchsleuth.capture.syntax import (
    covers,
    enclosing_no_grad,
    feeding_statements,
    node_at,
    returns_around,
    switches_grad_off,
)
from torchsleuth.capture.trained import trained_parameters
from torchsleuth.evidence import GradientCut, LostGradient, Place, TensorFact
from torchsleuth.model import Known, Span
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.tensors import dtype_name, storage_of
from torchsleuth.record.oplog import Mark, Operation
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

# Calls that hand a tensor's values to Python or numpy; what is made from those has no history.
_TO_PYTHON = {"item", "tolist", "numpy", "__float__", "__int__", "__array__", "__complex__"}
_COPIES = {"tensor", "as_tensor", "from_numpy", "new_tensor", "asarray", "Tensor", "FloatTensor", "full", "full_like"}
_MOST_STEPS = 5000


def investigate(crash: Crash) -> LostGradient | None:
    root = offending_root(crash)
    call = crash.place_of_failure()
    if root is None or call is None:
        return None
    made, _ = made_at(crash, root)
    search = Search(crash)
    cuts = search.from_root(root)
    if not cuts and made is None:
        cuts = cuts_by_syntax(crash)
    parameters = [(named.name, named.tensor) for named in crash.names.all() if named.kind == "parameter"]
    frozen = search.frozen or ({id(tensor) for _, tensor in parameters if not tensor.requires_grad} if not cuts else set())
    return LostGradient(
        root_fact(crash, root),
        call,
        made,
        tuple(cuts),
        tuple(name for name, tensor in parameters if not tensor.requires_grad),
        sum(tensor.requires_grad for _, tensor in parameters),
        torch.is_grad_enabled(),
        search.bare,
        frozen_at(crash, frozen),
        tuple(name for name, tensor in parameters if id(tensor) in search.frozen),
        frozen_by(crash, frozen),
        search.recorded,
    )


class _Cut(typing.NamedTuple):
    cut: GradientCut
    operation: Operation
    side: str  # of a loss: "input", "target", or "" for neither
    chosen: Operation | None = None  # it reaches the loss only as the whole numbers that this made of it: no gradient could come that way


class _Frozen(typing.NamedTuple):
    """A frozen parameter that took part in an operation on the way to the root, while recording was on."""

    ident: int
    operation: Operation
    side: str


def _side(operation: Operation, position: int) -> str:
    """Losses are given what is judged first, and then what it is judged by."""
    if operation.name.endswith("_loss") or operation.name in ("cross_entropy", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
        return "input" if position == 0 else "target"
    return ""


def _where(place: Place) -> tuple[Span, Span | None]:
    """Of a library's line each call that led there counts."""
    return place.span, place.via.span if place.via is not None else None


class Search:
    def __init__(self, crash: Crash) -> None:
        self._crash = crash
        self._timeline = crash.timeline
        self._latest: dict[tuple[int, int], list[Operation]] = {}
        for operation in self._timeline.operations:
            for mark in operation.results:
                self._latest.setdefault((mark.ident, mark.storage), []).append(operation)
        self.recorded = False  # the root itself was computed while recording was on
        self.bare = False  # some of it was made from numbers that the log did not see come from a tensor
        self.frozen: set[int] = set()  # parameters that are to blame instead of a cut, or with one
        self._to_python = [op for op in self._timeline.operations if op.name in _TO_PYTHON]

    def from_root(self, root: torch.Tensor) -> list[GradientCut]:
        producer = self.producer(id(root), storage_of(root), None)
        # With each operation the one of its results that leads to the root (of `max` and `topk` it may be the indices), on
        # which side of a loss it lies, what took the values out of torch on the way, and what made whole numbers of them.
        pending: list[tuple[Operation, tuple[int, int], str, str, Operation | None]] = []
        if producer is not None:
            self.recorded = producer.grad_enabled
            pending.append((producer, (id(root), storage_of(root)), "", "", None))
        seen: set[int] = set()
        cuts: list[_Cut] = []
        frozen: list[_Frozen] = []
        while pending and len(seen) < _MOST_STEPS:
            operation, wanted, side, handed, chosen = pending.pop()
            if operation.index in seen:
                continue
            seen.add(operation.index)
            losing = next((mark for mark in operation.operands if mark.requires_grad), None)
            if operation.name == "requires_grad_":
                continue  # frozen there, by intent: no value is lost
            leading = [mark for mark in operation.results if (mark.ident, mark.storage) == wanted] or list(operation.results)
            if losing is not None and not any(mark.requires_grad for mark in leading):
                cut = self.cut(operation, losing, leading)
                if cut is not None and all(_where(cut.place) != _where(other.cut.place) for other in cuts):
                    cuts.append(_Cut(dataclasses.replace(cut, handed=handed), operation, side, chosen))
                continue
            if chosen is None and leading and not any(_has_derivative(mark) for mark in leading) and any(map(_has_derivative, operation.operands)):
                chosen = operation
            handed = operation.name if operation.name in _TO_PYTHON else handed
            unknown = operation.name in _COPIES
            for position, mark in enumerate(operation.operands):
                producer = self.producer(mark.ident, mark.storage, operation.index)
                if producer is not None:
                    pending.append((producer, (mark.ident, mark.storage), side or _side(operation, position), handed, chosen))
                elif self._crash.names.by_id(mark.ident) is None or not mark.is_leaf:
                    unknown = True  # made where the log does not see: `torch.from_numpy`, for example
                if operation.grad_enabled and self._is_parameter(mark):
                    frozen.append(_Frozen(mark.ident, operation, side))
            if unknown:
                conversions = self._through_python(operation)
                pending.extend((conversion, (0, 0), side, "", chosen) for conversion in conversions)
                self.bare = self.bare or not conversions and not operation.operands and _takes_values(operation)
        meant = self._meant(cuts, frozen)
        return [*self._choices(meant), *(cut.cut for cut in meant)]

    def _choices(self, cuts: list[_Cut]) -> list[GradientCut]:
        """`scores.detach().argmax()`: with the detach gone the choice would cut, so that it is the first thing to look at. Not
        where something else may be to blame, and the choice is a label's."""
        if self.frozen or self.bare or any(cut.chosen is None or cut.side == "target" for cut in cuts):
            return []
        found: dict[object, GradientCut] = {}
        for cut in cuts:
            place = self._timeline.place_of_operation(cut.chosen)
            if place is not None:
                found.setdefault(place.span, GradientCut(cut.chosen.name, "integer", place, None))
        return list(found.values())

    def _meant(self, cuts: list[_Cut], frozen: list[_Frozen]) -> list[_Cut]:
        """A teacher or target network is cut off on purpose. Where a cut parts the loss from what an optimizer trains, that
        is the one meant."""
        meant, trained = cuts, trained_parameters(self._crash)
        if len(meant) > 1 and trained:
            meant = [cut for cut in meant if self._reaches(cut.operation, trained)] or meant
        meant = self._rather_frozen(meant, frozen, trained)
        # Labels, samples and counts are integers by nature. Where a path of real numbers is cut too, that is the one meant.
        return [cut for cut in meant if cut.cut.reason != "integer" and not cut.chosen] or [cut for cut in meant if not cut.chosen] or meant

    def _rather_frozen(self, cuts: list[_Cut], frozen: list[_Frozen], trained: set[int]) -> list[_Cut]:
        """Recording was on for a network whose weights are frozen, and switched off for another: the first may be the one
        that should have been trained. What an optimizer holds tells, or on which side of the loss each stands."""
        before = {cut.operation.index for cut in cuts}
        frozen = [item for item in frozen if not self._comes_from(item.operation, before)]  # else a judge of what was cut off
        idents = {item.ident for item in frozen}
        if not cuts:
            self.frozen = idents
            return cuts
        if not frozen or any(cut.cut.reason not in ("no_grad", "detach") for cut in cuts):
            return cuts
        held, parted = bool(idents & trained), any(self._reaches(cut.operation, trained) for cut in cuts)
        if trained and held != parted:
            instead = held
        elif any(_are_frozen(optimizer) and idents & {id(p) for group in optimizer.param_groups for p in group["params"]} for _, optimizer in self._crash.names.optimizers):
            instead = True  # an optimizer that can train nothing at all: the other one is not the one that this backward is for
        else:
            sides = {item.side for item in frozen}, {cut.side for cut in cuts}
            instead = {("input", "target"): True, ("target", "input"): False}.get(tuple("".join(sorted(one)) for one in sides))
        if instead is None and any(cut.cut.reason == "detach" for cut in cuts):
            return cuts
        if instead is not False:
            self.frozen = idents
        return [] if instead else cuts

    def _comes_from(self, operation: Operation, indices: set[int]) -> bool:
        pending, seen = [operation], {operation.index}
        while pending and len(seen) < _MOST_STEPS:
            for mark in pending.pop().operands:
                producer = self.producer(mark.ident, mark.storage, operation.index)
                if producer is not None and producer.index not in seen:
                    if producer.index in indices:
                        return True
                    seen.add(producer.index)
                    pending.append(producer)
        return False

    def _is_parameter(self, mark: Mark) -> bool:
        """A weight that did not ask for a gradient when it was used, and does not now."""
        named = self._crash.names.by_id(mark.ident)
        return not mark.requires_grad and named is not None and named.kind == "parameter" and not named.tensor.requires_grad

    def _reaches(self, cut: Operation, trained: set[int]) -> bool:
        """Whether the values that went into this operation were computed from one of these parameters."""
        pending, seen = [cut], {cut.index}
        while pending and len(seen) < _MOST_STEPS:
            operation = pending.pop()
            for mark in operation.operands:
                if mark.ident in trained:
                    return True
                named = self._crash.names.by_id(mark.ident)
                if mark.is_leaf and mark.requires_grad or named is not None and named.kind == "parameter":
                    continue  # another network's own weights: that they were copied from trained ones makes no path
                producer = self.producer(mark.ident, mark.storage, operation.index)
                if producer is not None and producer.index not in seen:
                    seen.add(producer.index)
                    pending.append(producer)
        return False

    def producer(self, ident: int, storage: int, before: int | None) -> Operation | None:
        made = self._latest.get((ident, storage), [])
        return next((op for op in reversed(made) if before is None or op.index < before), None)

    def _through_python(self, operation: Operation) -> list[Operation]:
        """`.item()`, `.numpy()` … whose values feed this constructor, by the names in the source."""
        node = node_at(operation.code, operation.lasti)
        if node is None:
            return []
        statements = feeding_statements(operation.code, node, node.lineno)
        own = source.statement_at(operation.code.co_filename, node.lineno)
        if own is not None:
            statements.append(own)
        called = {called_name(inner) for item in statements for inner in ast.walk(item) if isinstance(inner, ast.Call)}
        found = []
        for conversion in self._to_python:
            if conversion.index >= operation.index:
                continue
            if conversion.code is not operation.code and _function_name(conversion.code) in called and _is_returned(conversion):
                found.append(conversion)  # inside a function that one of these statements calls
                continue
            if conversion.code.co_filename != operation.code.co_filename:
                continue
            place = self._timeline.place_of_operation(conversion)
            if place is not None and any(covers(place, operation.code, statement) for statement in statements):
                found.append(conversion)
        return found

    def cut(self, operation: Operation, losing: Mark, results: list[Mark]) -> GradientCut | None:
        place = self._timeline.place_of_operation(operation)
        if place is None:
            return None
        reason, wrapper, switch = self._reason(operation, results), None, None
        if not operation.grad_enabled:
            wrapper = self._wrapper(operation)
            if wrapper is None and reason == "no_grad":
                switch = self._switch(operation)
                checkpointed = self._checkpoint(operation) if switch is None else None
                if checkpointed is not None:
                    return GradientCut("checkpoint", "checkpoint", checkpointed, None)
        return GradientCut(operation.name, reason, place, self._fact(operation, losing), wrapper, switch)

    @staticmethod
    def _reason(operation: Operation, results: list[Mark]) -> str:
        if operation.name in ("detach", "data", "detach_"):
            return "detach"
        if operation.name == "grad":
            return "gradient"
        if operation.name in _TO_PYTHON:
            return "python"
        if operation.name in _COPIES:
            return "copy"
        if not operation.grad_enabled:
            return "no_grad"
        if results and not any(map(_has_derivative, results)):
            return "integer"
        return "not differentiable"

    def _wrapper(self, operation: Operation) -> Place | None:
        for code, lasti in operation.stack if not operation.grad_enabled else ():
            node = enclosing_no_grad(code, lasti)
            if node is not None:
                return source.place_of_node(code, node, Known.OBSERVED)
        return None

    def _checkpoint(self, operation: Operation) -> Place | None:
        """The `checkpoint(...)` that this ran in, where nothing else has switched recording off: its reentrant form runs the
        function without recording, and records one node for all of it only if an input asks."""
        for position, (code, lasti) in enumerate(operation.stack):
            node = node_at(code, lasti)
            if isinstance(node, ast.Call) and "checkpoint" in called_name(node):
                via = None
                if origin_of(code) is not Origin.USER:
                    user = next(((outer, at) for outer, at in operation.stack[position:] if origin_of(outer) is Origin.USER), None)
                    via = source.place_of_instruction(*user) if user is not None else None
                return source.place_of_node(code, node, Known.OBSERVED, via)
        return None

    def _switch(self, operation: Operation) -> Place | None:
        """Recording is off and no block around this operation says so: the last `set_grad_enabled(...)` that ran before it."""
        switches: dict[tuple[int, int], tuple[types.CodeType, ast.Call] | None] = {}
        last, lately = None, set()  # without recording no node is made: what ran since has the operation's own number
        for event in self._timeline.events():
            if event.sequence > operation.sequence:
                break
            if event.kind is not Kind.LINE:
                continue
            key = (id(event.code), event.where)
            if key not in switches:
                call = _switching_call(event.code, event.where)
                switches[key] = (event.code, call) if call is not None else None
            last = switches[key] or last
            if switches[key] is not None and event.sequence == operation.sequence:
                lately.add(key)
        if last is None or len(lately) > 1 or not switches_grad_off(last[1]):
            return None
        plain = isinstance(last[1].args[0], ast.Constant)
        return source.place_of_node(*last, Known.OBSERVED if plain else Known.INFERRED)

    def _fact(self, operation: Operation, mark: Mark) -> TensorFact:
        named = self._crash.names.by_id(mark.ident)
        if named is not None and storage_of(named.tensor) == mark.storage and self._is_still(named.tensor, operation, mark):
            return self._crash.names.fact(named.tensor)
        name = operand_name(self._crash, operation, operation.operands.index(mark))
        return TensorFact(name, mark.shape, dtype_name(mark.dtype), str(mark.device), mark.requires_grad, mark.is_leaf)

    def _is_still(self, tensor: torch.Tensor, operation: Operation, mark: Mark) -> bool:
        """The tensor that took part then, and not a later one that got its place in memory."""
        if (tuple(tensor.shape), tensor.requires_grad) != (mark.shape, mark.requires_grad):
            return False
        later = [op for op in self._latest.get((mark.ident, mark.storage), []) if op.index > operation.index]
        return all(any(given.ident == mark.ident for given in op.operands) for op in later)


def _are_frozen(optimizer: torch.optim.Optimizer) -> bool:
    return all(not p.requires_grad for group in optimizer.param_groups for p in group["params"])


def _has_derivative(mark: Mark) -> bool:
    """Real or complex numbers; integers and booleans jump."""
    return dtype_name(mark.dtype).startswith(("float", "bfloat", "complex"))


def _switching_call(code: types.CodeType, line: int) -> ast.Call | None:
    """`torch.set_grad_enabled(...)` as a statement of its own: what it sets stays."""
    statement = source.statement_at(code.co_filename, line)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call if isinstance(call, ast.Call) and called_name(call) == "set_grad_enabled" else None


def _function_name(code: types.CodeType) -> str:
    """`log` for the comprehension `Logger.log.<locals>.<dictcomp>`, too: before Python 3.12 that is code of its own."""
    return next((part for part in reversed(code.co_qualname.split(".")) if not part.startswith("<")), code.co_name)


def _is_returned(conversion: Operation) -> bool:
    """Whether this expression feeds what its function returns."""
    where = source.instruction_range(conversion.code, conversion.lasti)
    own = source.statement_at(conversion.code.co_filename, where[0]) if where else None
    if own is None:
        return False
    for returned in returns_around(conversion.code, where[0]):
        if own is returned or returned.value is not None and own in feeding_statements(conversion.code, returned.value, returned.lineno):
            return True
    return False


def _takes_values(operation: Operation) -> bool:
    """A constructor given more than literals: `torch.as_tensor(score(x, y))`, but not `torch.tensor(0.0)`."""
    node = node_at(operation.code, operation.lasti)
    if operation.name not in _COPIES or not isinstance(node, ast.Call):
        return False
    return any(isinstance(inner, (ast.Name, ast.Call)) for argument in node.args[:1] for inner in ast.walk(argument))
