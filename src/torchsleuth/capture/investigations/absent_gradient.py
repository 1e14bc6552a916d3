"""Why a tensor's `.grad` is None: it asks for none, it is a result, or no backward has reached it since it was cleared."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.failure import Failure, log_ran_to_the_end
from torchsleuth.capture.freezing import frozen_at
from torchsleuth.capture.investigations.backward_root import made_at
from torchsleuth.capture.investigations.lost import Search
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.makers import module_made, owner_of
from torchsleuth.capture.none_gradients import NoneGradient, is_none, none_gradient
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.syntax import node_at
from torchsleuth.evidence import AbsentGradient, GradientCut, Place, TensorFact
from torchsleuth.probe import graph
from torchsleuth.probe.tensors import storage_of, tensor_fact
from torchsleuth.record.oplog import Mark, Operation
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_NAMED = 6
_MOST_CUTS = 3
_HISTORY = 2000  # nodes looked at behind a result
# Calls that read parameters and compute nothing of what is trained.
_HOUSEKEEPING = frozenset({"step", "zero_grad", "load_state_dict", "state_dict", "clip_grad_norm_", "parameters_to_vector", "backward", "requires_grad_", "deepcopy"})


def investigate(crash: Crash) -> AbsentGradient | None:
    failure = Failure.anywhere(crash)
    if failure is None or failure.user is None:
        return None
    origins = Origins(failure)
    found = none_gradient(failure, origins.definitions, isinstance(crash.error, AttributeError) and failure.user is failure.inner)
    use = failure.user.place()
    asked = source.place_of_node(found.entry.code, found.node) if found is not None else None
    if found is None or use is None or asked is None:
        return None
    return _Explained(crash, failure, origins, found).gradient(asked, use)


class _Explained:
    def __init__(self, crash: Crash, failure: Failure, origins: Origins, found: NoneGradient) -> None:
        self._crash, self._failure, self._origins, self._found = crash, failure, origins, found
        self._tensor = found.tensor
        self._timeline = crash.timeline

    def gradient(self, asked: Place, use: Place) -> AbsentGradient | None:
        reason, more = self._reason()
        fact = self._fact()
        if reason in ("constant", "computed"):
            made, made_by = made_at(self._crash, self._tensor)
            more |= {"made": made, "made_by": made_by}
        elif fact.kind == "parameter" and reason in ("unused", "aside", "returned", "unreached"):
            made = module_made(self._failure, self._origins.definitions, owner_of(self._failure, self._tensor))
            more |= {"layer": made.place if made is not None else None, "alike": self._alike(fact.name) if reason != "returned" else ()}
        return AbsentGradient(fact, self._found.owner, asked, use, reason, **more)

    def _fact(self) -> TensorFact:
        fact = self._crash.names.fact(self._tensor)
        return fact if fact.name or not self._found.owner else tensor_fact(self._tensor, self._found.owner, "variable")

    def _reason(self) -> tuple[str, dict[str, typing.Any]]:
        tensor = self._tensor
        if not tensor.requires_grad:
            return "constant", {"frozen_at": frozen_at(self._crash, {id(tensor)})}
        if self._found.returned:
            return "returned", {}
        if tensor.grad_fn is not None and not tensor.retains_grad:
            return "computed", {"leaves": self._leaves(tensor)}
        backward, cleared = self._lines()
        if cleared is not None:
            return "cleared", {"backward": backward, "other": cleared}
        logged = [op for op in self._timeline.operations if op.name == "backward" and not op.raised]
        if backward is None and not logged:
            asked = next((op for op in reversed(self._timeline.operations) if op.name == "grad" and not op.raised), None)
            if asked is not None:
                return "elsewhere", {"other": self._timeline.place_of_operation(asked)}
            return ("before" if self._sees_all() else "unreached"), {}
        more: dict[str, typing.Any] = {"backward": backward or self._timeline.place_of_operation(logged[-1])}
        if not logged or not log_ran_to_the_end(self._crash):
            return "unreached", more
        reason, seen = self._way(logged)
        return reason, more | seen

    def _leaves(self, tensor: torch.Tensor) -> tuple[str, ...]:
        variables = (getattr(node, "variable", None) for node in graph.walk([tensor.grad_fn], _HISTORY))
        named = (self._crash.names.by_id(id(variable)) for variable in variables if variable is not None)
        return tuple(dict.fromkeys(item.name for item in named if item is not None))[:_MOST_NAMED]

    def _alike(self, name: str) -> tuple[str, ...]:
        root = name.split(".", 1)[0]
        others = (item for item in self._crash.names.all() if item.kind == "parameter" and item.tensor is not self._tensor)
        return tuple(item.name for item in others if item.name.startswith(f"{root}.") and item.tensor.requires_grad and is_none(item.tensor))[:_MOST_NAMED]

    # -- what ran -----------------------------------------------------------------------------------

    def _sees_all(self) -> bool:
        recording = self._crash.recording
        return recording is not None and recording.ring.oldest == 0 and not recording.ring.gaps

    def _lines(self) -> tuple[Place | None, Place | None]:
        """The last backward by the lines that ran, and what cleared this gradient after it."""
        cleared = None
        known: dict[tuple[int, int], ast.stmt | None] = {}
        for event in self._timeline.events_backwards():
            if event.kind is not Kind.LINE:
                continue
            key = (id(event.code), event.where)
            if key in known and known[key] is None:
                continue
            statement = known.setdefault(key, _simple(source.statement_at(event.code.co_filename, event.where)))
            for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)) if statement is not None else ():
                if called_name(call).endswith("backward"):
                    return source.place_of_node(event.code, call), cleared
                if cleared is None and called_name(call) == "zero_grad" and isinstance(call.func, ast.Attribute) and self._clears(event.code, call):
                    cleared = source.place_of_node(event.code, call)
        return None, None

    def _clears(self, code: types.CodeType, call: ast.Call) -> bool:
        if any(keyword.arg == "set_to_none" and getattr(keyword.value, "value", True) is False for keyword in call.keywords):
            return False
        for owner in values_of(self._crash, code, call.func.value):  # type: ignore[attr-defined]
            held: list[typing.Any] = []
            if isinstance(owner, torch.optim.Optimizer):
                held = [parameter for group in owner.param_groups for parameter in group["params"]]
            elif isinstance(owner, torch.nn.Module):
                held = list(owner.parameters())
            if any(item is self._tensor for item in held):
                return True
        return False

    # -- the way from the tensor to what was differentiated --------------------------------------------

    def _way(self, backwards: list[Operation]) -> tuple[str, dict[str, typing.Any]]:
        """Followed forwards through the log, from the backward before the last one to the last."""
        since = backwards[-2].index if len(backwards) > 1 else -1
        last = backwards[-1]
        window = [op for op in self._timeline.operations if since < op.index < last.index and not self._is_housekeeping(op)]
        own = (id(self._tensor), storage_of(self._tensor))
        uses = [(op, mark) for op in window for at, mark in enumerate(op.operands) if (mark.ident, mark.storage) == own and not _sets(op, at)]
        if not uses:
            return "unused", {}
        if not any(mark.requires_grad for _, mark in uses):
            return self._late(uses[-1][0])
        arrived = self._arrived(window, last, own)
        if arrived is None:
            return "aside", {"other": self._timeline.place_of_operation(uses[0][0])}
        search, cuts = Search(self._crash), []
        for operation, losing in list(arrived.values())[:_MOST_CUTS]:
            cut = search.cut(operation, losing, list(operation.results))
            if cut is not None:
                cuts.append(cut)
        return ("cut", {"cuts": tuple(_distinct(cuts))}) if cuts else ("unreached", {})

    def _late(self, used: Operation) -> tuple[str, dict[str, typing.Any]]:
        for operation in self._timeline.operations:
            asks = operation.name in ("requires_grad_", "requires_grad=") and operation.index > used.index
            if asks and any(mark.ident == id(self._tensor) for mark in operation.operands):
                return "late", {"other": self._timeline.place_of_operation(operation)}
        return "unreached", {}

    def _arrived(self, window: list[Operation], last: Operation, own: tuple[int, int]) -> dict[int, tuple[Operation, Mark]] | None:
        """The operations that ended the history on the ways from the tensor to the root; None where there is no way."""
        carried: dict[tuple[int, int], dict[int, tuple[Operation, Mark]]] = {own: {}}
        for operation in (*window, last):
            given = [mark for mark in operation.operands if (mark.ident, mark.storage) in carried]
            cuts = {index: cut for mark in given for index, cut in carried[mark.ident, mark.storage].items()}
            if operation is last:
                return cuts if given else None
            losing = next((mark for mark in given if mark.requires_grad), None)
            if losing is not None and operation.results and not any(mark.requires_grad for mark in operation.results):
                cuts[operation.index] = operation, losing
            for mark in operation.results:
                key = (mark.ident, mark.storage)
                if given:
                    carried[key] = cuts
                elif key != own:
                    carried.pop(key, None)  # another tensor, in the place of one that is gone
        return None

    def _is_housekeeping(self, operation: Operation) -> bool:
        node = node_at(operation.code, operation.lasti)
        return operation.name in _HOUSEKEEPING or isinstance(node, ast.Call) and called_name(node) in _HOUSEKEEPING


def _sets(operation: Operation, position: int) -> bool:
    """It gives the tensor its values, or is how a parameter is made."""
    return any(write.operand == position for write in operation.writes) or operation.name == "_make_subclass"


def _distinct(cuts: list[GradientCut]) -> list[GradientCut]:
    return list({cut.place.span: cut for cut in cuts}.values())


def _simple(statement: ast.stmt | None) -> ast.stmt | None:
    """Statements that call what is looked for; a loop's or a function's head does not."""
    if statement is None or hasattr(statement, "body"):
        return None
    names = {called_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    return statement if any(name.endswith("backward") or name == "zero_grad" for name in names) else None
