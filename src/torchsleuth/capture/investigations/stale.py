"""Saved tensors that were overwritten: every node that can no longer be differentiated, and who wrote."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import typing

import torch

from torchsleuth import env, source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.carried import carried_over
from torchsleuth.capture.checkpoints import kept_inputs, line_of_checkpoint, place_of_checkpoint, running_again
from torchsleuth.capture.functions import kept_in_forward
from torchsleuth.capture.operand_sources import operand_name
from torchsleuth.capture.syntax import bound_name, node_at, saved_name, simple_text
from torchsleuth.capture.trained import trained_parameters
from torchsleuth.capture.writes import writes_since
from torchsleuth.capture.writes_by_syntax import written_targets
from torchsleuth.capture.writes_logged import Writes, grouped
from torchsleuth.evidence import CarriedTensor, Place, StaleSave, TensorFact
from torchsleuth.frozen import frozen
from torchsleuth.probe import graph
from torchsleuth.probe.graph import Saved, operation_of, saved_tensors, sequence_of
from torchsleuth.probe.tensors import fact_from_message, storage_of
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_SAVES = 24


def investigate(crash: Crash) -> tuple[StaleSave, ...]:
    stale = [
        (keeper, saved)
        for keeper, every in _kept(crash)
        for saved in every
        if saved.state == "stale"
    ]  # fmt: skip
    # The engine runs the newest ready node first, so among equal messages the newest is the one that failed.
    stale.sort(key=lambda pair: -pair[0].number)
    about = [pair for pair in stale if _same_complaint(pair[1].message, crash.message)]
    failing = next((pair for pair in about if pair[0].node is None), about[0] if about else None)
    if failing is not None and failing[0].node is None and not env.saved_tensors_show_their_data():
        stale = [pair for pair in stale if pair not in about]  # to read what was saved has run the function again, which failed again
        stale.insert(0, failing)
    elif failing is not None:
        stale.remove(failing)
        stale.insert(0, failing)
    if failing is None and not stale:
        return _inside_views(crash)
    cache: dict[tuple, Writes] = {}
    return tuple(_save(crash, keeper, saved, (keeper, saved) == failing, cache) for keeper, saved in stale[:_MOST_SAVES])


@frozen
class Keeper:
    """Who saved a tensor: a node of the graph, or a checkpoint what its function is to be run with again."""

    node: typing.Any  # None: the checkpoint that is running its function again
    number: int  # what wrote since has made nodes with later numbers
    name: str

    def place(self, crash: Crash) -> Place | None:
        return crash.timeline.place_of_node(self.node) if self.node is not None else place_of_checkpoint(crash, running_again(crash))


def _kept(crash: Crash) -> typing.Iterator[tuple[Keeper, typing.Iterable[Saved]]]:
    for node in crash.nodes:
        yield Keeper(node, sequence_of(node), node.name()), saved_tensors(node)
    checkpoint = running_again(crash)
    line = line_of_checkpoint(crash, checkpoint) if checkpoint is not None else None
    if line is not None:
        yield Keeper(None, line.sequence - 1, "checkpoint"), kept_inputs(checkpoint)


_VERSIONS = re.compile(r"\[torch\.\S+ \[([\d, ]*)\]\].*is at version (\d+); expected version (\d+)")
# In-place operations whose backward uses their own result.
_KEEP_RESULTS = {
    "exp_", "exp2_", "expm1_", "sigmoid_", "tanh_", "sqrt_", "rsqrt_", "reciprocal_", "relu_", "leaky_relu_", "elu_", "celu_", "selu_", "hardtanh_",
    "threshold_", "softmax", "relu", "elu", "selu", "leaky_relu", "__ipow__", "pow_",
}  # fmt: skip


def _inside_views(crash: Crash) -> tuple[StaleSave, ...]:
    """A write into a view keeps what it saved inside a CopySlices node, where nobody can read it: the log says which write.

    `h = torch.einsum(...); h.exp_(); h /= h.sum()`: einsum returns a view, and `exp_` saved its result.
    """
    message = _VERSIONS.search(crash.message)
    if message is None:
        return ()
    shape = tuple(int(size) for size in message[1].split(",") if size.strip())
    now, saved = int(message[2]), int(message[3])
    found: list[tuple[Operation, int, list]] = []
    for operation in crash.timeline.operations:
        if not operation.grad_enabled or operation.name not in _KEEP_RESULTS:
            continue
        for write in operation.writes:
            mark = operation.operands[write.operand]
            if mark.shape != shape or write.after != saved:
                continue
            later = [
                (other, step, other.operands[step.operand])
                for other in crash.timeline.operations
                if other.index > operation.index
                for step in other.writes
                if other.operands[step.operand].storage == mark.storage and step.before >= saved and step.after <= now
            ]
            if {step for _, write_, _ in later for step in range(write_.before, write_.after)} == set(range(saved, now)):
                found.append((operation, mark.storage, later))
    if len(found) != 1:
        return ()
    operation, storage, later = found[0]
    tensor = next((named.tensor for named in crash.names.all() if storage_of(named.tensor) == storage and tuple(named.tensor.shape) == shape), None)
    place = crash.timeline.place_of_operation(operation)
    if tensor is None or place is None:
        return ()
    name = operation.name.strip("_")
    sites = grouped(crash, tensor, later)
    return (StaleSave(f"{name.capitalize()}Backward0", name, "result", place, crash.names.fact(tensor), saved, now, True, sites, True, (), storage),)


def _same_complaint(one: str, other: str) -> bool:
    return one.split(" Hint:")[0] == other.split(" Hint:")[0]


def _save(crash: Crash, keeper: Keeper, saved: Saved, failing: bool, cache: dict[tuple, Writes]) -> StaleSave:
    tensor = saved.tensor
    node, number, place = keeper.node, keeper.number, keeper.place(crash)
    if tensor is None:
        writes, named_in = Writes((), False), ""
        fact = fact_from_message(saved.message)
    else:
        key = (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), number, saved.version_saved)
        if key not in cache:
            cache[key] = writes_since(crash, tensor, number, node, saved.version_saved, saved.version_now)
        writes = cache[key]
        fact, named_in = _named(crash, keeper, place, saved, crash.names.fact(tensor), writes)
    return StaleSave(
        keeper.name,
        operation_of(keeper.name),
        saved.name,
        place,
        fact,
        saved.version_saved,
        saved.version_now,
        failing,
        writes.sites,
        writes.complete,
        writes.candidates,
        storage_of(tensor) if tensor is not None else 0,
        _is_untrained(crash, node, fact),
        named_in,
        len(getattr(node, "_input_metadata", ())) > 1,
        _born(crash, tensor),
        _carried(crash, node, tensor, writes) if failing and tensor is not None and node is not None else (),
        kept_in_forward(node),
    )


def _born(crash: Crash, tensor: torch.Tensor | None) -> Place | None:
    maker = crash.timeline.first_with_storage(storage_of(tensor)) if tensor is not None and storage_of(tensor) else None
    return crash.timeline.place_of_operation(maker) if maker is not None else None


def _carried(crash: Crash, node: typing.Any, tensor: torch.Tensor, writes: Writes) -> tuple[CarriedTensor, ...]:
    """The weights were updated by a step: what was computed before it and is used by what was computed after it."""
    step = next((site for site in writes.sites if "step" in called_by(site.place)), None)
    if step is None or step.first_version is None:
        return ()
    storage, number = storage_of(tensor), sequence_of(node)
    moments = (
        operation.sequence
        for operation in crash.timeline.operations
        if operation.sequence > number and any(operation.operands[write.operand].storage == storage for write in operation.writes)
    )
    first = next(moments, None)
    return carried_over(crash, first, lambda inner: inner is node)[0] if first is not None else ()


def _is_untrained(crash: Crash, node: typing.Any, fact: TensorFact) -> bool:
    """A parameter, and neither it nor anything else that the gradient goes on to from there is held by an optimizer in sight."""
    trained = trained_parameters(crash)
    if fact.kind != "parameter" or not trained or node is None:
        return False
    return not any(id(inner.variable) in trained for inner in graph.walk([node]) if hasattr(inner, "variable"))


def called_by(place: Place) -> str:
    """`optimizer.step` of `optimizer.step()`."""
    return (place.via or place).source.partition("(")[0]


def _named(crash: Crash, keeper: Keeper, place: Place | None, saved: Saved, fact: TensorFact, writes: Writes) -> tuple[TensorFact, str]:
    """Where no variable in sight holds the tensor any more, the expression that saved it still says its name; or else the one
    that wrote, and then in which function that is its name."""
    if fact.name:
        return _as_its_lines_say(fact, place, writes), ""
    operation = crash.timeline.operation_of_sequence(keeper.number) if keeper.node is not None else None
    name = ""
    if operation is not None:
        name = saved_name(operation.code, operation.lasti, keeper.name, saved.name) or _operand_name(crash, operation, storage_of(saved.tensor))
        name = name or _argument_name(crash, operation, storage_of(saved.tensor))
        if not name and saved.name in ("result", "output", "out"):  # `y = self.act(x)`, and `y += 1` is the one write
            bound = bound_name(operation.code, operation.lasti)
            name = bound if bound and {bound} == _targets(writes) else ""
    by_write = not name
    name = name or _written_name(place, writes, saved.name in ("result", "output", "out"))
    named_in = ""
    if not name and writes.complete and len(_targets(writes)) == 1:
        name = next(iter(_targets(writes)))  # what it is called where it was written
        site = writes.sites[0]
        if place is not None and not _same_scope(name, place.function, site.place.function):
            named_in = site.place.function
            if saved.name in ("result", "output", "out"):
                return fact, ""  # it is the result of the saving expression: that needs no name
    if name and by_write and not named_in and writes.sites[0].operation == "__setitem__" and writes.sites[0].whole is False:
        return dataclasses.replace(fact, view_of=name), ""  # `out[t] = ...`, and what was saved is another part of `out`
    return (dataclasses.replace(fact, name=name, kind="variable"), named_in) if name else (fact, "")


def _as_its_lines_say(fact: TensorFact, place: Place | None, writes: Writes) -> TensorFact:
    """A caller's variable may hold what a function wrote and saved under a name of its own: `x, g = block(x)`. Who looks at the
    function's lines finds that one."""
    targets = _targets(writes)
    if fact.kind != "variable" or place is None or not writes.complete or len(targets) != 1 or not fact.name.isidentifier():
        return fact
    (own,) = targets
    sources = [place.source, *(site.place.source for site in writes.sites)]
    if not own.isidentifier() or any(re.search(rf"\b{fact.name}\b", text) for text in sources) or not re.search(rf"\b{own}\b", place.source):
        return fact
    return dataclasses.replace(fact, name=own) if all(_same_scope(own, place.function, site.place.function) for site in writes.sites) else fact


def _argument_name(crash: Crash, operation: Operation, storage: int) -> str:
    """`g` of `self.conv(g)`: memory that was there before the module was called is what the call was given."""
    call = node_at(operation.code, operation.lasti)
    given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
    maker = crash.timeline.first_with_storage(storage)
    if len(given) != 1 or maker is None or maker.index >= operation.index or (maker.code, maker.lasti) == (operation.code, operation.lasti):
        return ""
    return simple_text(given[0]) if any(mark.storage == storage for mark in operation.operands) else ""


def _operand_name(crash: Crash, operation: Operation, storage: int) -> str:
    """The one operand of the saving call that lies in this memory, as the source calls it."""
    marks = [position for position, mark in enumerate(operation.operands) if mark.storage == storage]
    return operand_name(crash, operation, marks[0]) if len(marks) == 1 and not _by_helper(operation) else ""


def _by_helper(operation: Operation) -> bool:
    """Called by a module or helper: its arguments need not be the operands."""
    call = node_at(operation.code, operation.lasti)
    return isinstance(call, ast.Call) and called_name(call).strip("_") != operation.name.strip("_")


def _written_name(save: Place | None, writes: Writes, is_result: bool) -> str:
    """`x` of `scale = x.cosh()` and `x += 1`: what the one write goes to, where the saving expression reads it too; of a
    saved result, where the saving statement binds it."""
    names = _targets(writes)
    if save is None or len(names) != 1 or not _same_scope(next(iter(names)), save.function, writes.sites[0].place.function):
        return ""
    if is_result:
        statement = source.statement_at(os.path.abspath(save.span.file), save.span.line)
        bound = {simple_text(target) for target in statement.targets} if isinstance(statement, ast.Assign) else set()
        whole = isinstance(statement, ast.Assign) and ast.unparse(statement.value) == _unparsed(save.source)
        return names.pop() if whole and bound == names else ""
    try:
        read = ast.parse(save.source, mode="eval")
    except SyntaxError:
        return ""
    return names.pop() if names <= {simple_text(node) for node in ast.walk(read)} else ""


def _same_scope(name: str, one: str, other: str) -> bool:
    """Both in one function, or an attribute of the same class."""
    return one == other or name.startswith("self.") and one.rpartition(".")[0] == other.rpartition(".")[0] != ""


def _unparsed(text: str) -> str:
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError:
        return text


def _targets(writes: Writes) -> set[str]:
    """What the one write goes to, as its own expression calls it. Where that is a name for a part of the saved tensor, it is not the tensor's."""
    if len(writes.sites) != 1:
        return set()
    try:
        written = ast.parse(writes.sites[0].place.source).body[0]
    except (SyntaxError, IndexError):
        return set()
    if isinstance(written, ast.Expr) and isinstance(written.value, ast.Subscript):
        return {simple_text(written.value.value)} - {""}  # the target of `x[i] = ...`
    part = writes.sites[0].whole is False and not (isinstance(written, ast.AugAssign) and isinstance(written.target, ast.Subscript))
    return set() if part else {simple_text(target) for target, _, how in written_targets(written) if how not in ("call", "step")} - {""}
