"""What a graph carries over a moment, a backward or an optimizer's step: tensors made before it and used after it."""

from __future__ import annotations

import ast
import itertools
import typing
from collections.abc import Callable

from torchsleuth import source
from torchsleuth.capture.keepers import carried_by_caller, kept_at
from torchsleuth.capture.operand_sources import operand_name
from torchsleuth.capture.stored import is_data, stored_at
from torchsleuth.capture.syntax import bound_name, node_at
from torchsleuth.evidence import CarriedTensor, Holder, Place, TensorFact
from torchsleuth.probe import graph
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of
from torchsleuth.probe.holders import held_in
from torchsleuth.probe.tensors import dtype_name
from torchsleuth.record.oplog import Operation
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_JOINS = frozenset({"stack", "cat", "concat", "concatenate", "vstack", "hstack", "dstack", "column_stack"})  # of a list
_MOST_CARRIED = 3
_MOST_WALKED = 20_000


def carried_over(crash: Crash, boundary: int, is_lost: Callable[[typing.Any], bool], callers: bool = False) -> tuple[tuple[CarriedTensor, ...], list[typing.Any]]:
    """Edges from a node made after the moment to one made before it that is lost (freed, overwritten) or leads to lost ones;
    and the older nodes of these edges. `callers`: the state may have been kept by a function further out."""
    leads_to_lost: dict[int, bool] = {}

    def lost_below(node: typing.Any) -> bool:
        key = id(node)
        if key not in leads_to_lost:
            leads_to_lost[key] = any(is_lost(inner) for inner in graph.walk([node], _MOST_WALKED))
        return leads_to_lost[key]

    found: list[CarriedTensor] = []
    edges: list[typing.Any] = []
    for node in sorted(crash.nodes, key=sequence_of):
        if not boundary <= sequence_of(node) < LEAF_SEQUENCE:
            continue
        for older, _ in node.next_functions:
            if older is None or sequence_of(older) >= boundary or not lost_below(older):
                continue
            edges += [older] if all(older is not other for other in edges) else []
            item = _carried_tensor(crash, older, node, is_lost, callers, boundary)
            if all((item.made, item.used) != (other.made, other.used) for other in found):
                found.append(item)
            if len(found) >= _MOST_CARRIED:
                return tuple(found), edges
    return tuple(found), edges


def _carried_tensor(crash: Crash, older: typing.Any, newer: typing.Any, is_lost: Callable[[typing.Any], bool], callers: bool, boundary: int) -> CarriedTensor:
    timeline = crash.timeline
    operation = timeline.operation_of_sequence(sequence_of(newer))
    name, within = _operand_name(crash, operation, older)
    maker = timeline.operation_of_sequence(sequence_of(older))
    if not name:
        named = crash.names.with_grad_fn(older)
        name = named[0].name if named else ""
    several: tuple[str, ...] = ()
    if not name:
        carried = _loop_carried(crash, maker, operation)
        name, several = (carried[0], ()) if len(carried) == 1 else ("", carried)
    if not name and not several and maker is not None:
        name = bound_name(maker.user_code, maker.user_lasti)
    made, used = timeline.place_of_node(older), timeline.place_of_node(newer)
    if not name and not several and made is not None and used is not None and made.span == used.span:
        name = _augmented(made.source)
    kept = kept_at(maker, operation, several or (name,))
    if callers and kept is None and maker is not None and operation is not None:
        caller = carried_by_caller(crash, sequence_of(older), sequence_of(newer), {maker.user_code, operation.user_code})
        if caller is not None:
            (name, kept), several = caller, ()
    holders = _holders(crash, made, boundary)
    inside = [holder.path for holder in holders if holder.path.startswith(f"{name}.") and holder.kind == "tensor"] if kept is not None else []
    if len(inside) == 1:
        name = inside[0]  # `carry.memory`, where it is `carry` that the statement keeps
    if not name and not several and len(holders) == 1 and holders[0].kind == "tensor":
        name = holders[0].path
    shape, dtype = _result_of(older)
    return CarriedTensor(
        TensorFact(name, shape, dtype, "", True, False, "variable" if name else ""),
        made,
        operation_of(older.name()),
        used,
        operation_of(newer.name()),
        _since(crash, older, is_lost),
        several,
        kept,
        _during(crash, sequence_of(older)),
        within,
        holders,
        _is_repeated(crash, older, made, boundary),
        stored_at(crash, older) if within else None,
        within and is_data(crash, older),
    )


def _holders(crash: Crash, made: Place | None, boundary: int) -> tuple[Holder, ...]:
    """Attributes of objects, and what they hold, where it was made since; a variable of the function's own is what the source says."""
    entry = crash.user_entry()
    found: dict[str, Holder] = {}
    for path, kind, tensor in held_in(entry[0]) if entry is not None and made is not None else ():
        if path.isidentifier() or path in found or tensor.grad_fn is None:
            continue
        if boundary <= sequence_of(tensor.grad_fn) < LEAF_SEQUENCE and _is_made_at(crash, tensor.grad_fn, made):
            found[path] = Holder(path, kind)
    return tuple(found.values())[:_MOST_CARRIED]


def _is_repeated(crash: Crash, older: typing.Any, made: Place | None, boundary: int) -> bool:
    name = older.name()
    alike = (node for node in crash.nodes if boundary <= sequence_of(node) < LEAF_SEQUENCE and node.name() == name)
    return made is not None and len(list(itertools.islice((node for node in alike if _is_made_at(crash, node, made)), 2))) == 2


def _is_made_at(crash: Crash, node: typing.Any, made: Place) -> bool:
    place = crash.timeline.place_of_node(node)
    return place is not None and place.span == made.span


def _during(crash: Crash, number: int) -> Place | None:
    """`prior = make_prior()`: the statement that the function of the failing backward was at when this node was made, once and in
    this same call of that function, by a function that was called there."""
    entry = crash.user_entry()
    position = crash.timeline.event_before(number)
    if entry is None or position is None:
        return None
    code, inner = entry[0].f_code, crash.timeline.event(position)
    if inner is None or inner.code is code and inner.kind is Kind.LINE:
        return None
    line = None
    for count, event in enumerate(crash.timeline.events()):
        if event.code is not code:
            continue
        if count > position and (event.kind is Kind.START or event.kind is Kind.LINE and event.where == line):
            return None  # it was made in an earlier call, or is made in every round
        if count <= position:
            line = event.where if event.kind is Kind.LINE else None
    statement = source.statement_at(code.co_filename, line) if line is not None else None
    return source.place_of_node(code, statement) if isinstance(statement, ast.Assign) else None


def _augmented(text: str) -> str:
    """`self.total` of `self.total += loss`."""
    try:
        statement = ast.parse(text).body
    except SyntaxError:
        return ""
    return ast.unparse(statement[0].target) if len(statement) == 1 and isinstance(statement[0], ast.AugAssign) else ""


def _since(crash: Crash, node: typing.Any, is_lost: Callable[[typing.Any], bool]) -> int | None:
    """The line that the function which made this node was at when the oldest lost part of its history was made."""
    place = crash.timeline.place_of_node(node)
    place = place.via if place is not None and place.via is not None else place
    lost = [sequence_of(inner) for inner in graph.walk([node], _MOST_WALKED) if sequence_of(inner) < LEAF_SEQUENCE and is_lost(inner)]
    if place is None or not lost:
        return None
    line, oldest = None, min(lost)
    known: dict[int, bool] = {}
    for event in crash.timeline.events():
        if event.sequence > oldest:
            break  # an event carries the number of the next node: the line that made the oldest has its number or a smaller one
        key = id(event.code)
        if key not in known:
            same_name = event.code.co_qualname.replace("<locals>.", "") == place.function
            known[key] = same_name and source.display_name(event.code.co_filename) == place.span.file
        own = known[key]
        if own and event.kind is Kind.LINE:
            line = event.where
        elif own and event.kind in (Kind.START, Kind.RETURN):
            line = None
    return line


def _loop_carried(crash: Crash, maker: Operation | None, user: Operation | None) -> tuple[str, ...]:
    """The variables that the maker's statement binds and the user's statement reads: `out, h = rnn(x, h)` carries `h`."""
    if maker is None or user is None:
        return ()
    bound = _names(_statement(maker), ast.Store)
    read = _names(_statement(user), ast.Load)
    both = [name for name in bound if name in read]
    if len(both) < 2:
        return tuple(both)
    # `h, c = cell(x, (h, c))`: those among what the call is given that the maker returned.
    call = node_at(user.user_code, user.user_lasti)
    given = [name for argument in call.args for name in _given(argument)] if isinstance(call, ast.Call) else []
    found = []
    for position, mark in enumerate(user.operands[: len(given)]):
        if crash.timeline.producer(mark.ident, mark.storage, user.index) is maker and given[position] in both:
            found.append(given[position])
    return tuple(found)


def _given(argument: ast.expr) -> list[str]:
    """What one argument gives, tuples and lists taken apart: "" for anything but a plain name or path."""
    if isinstance(argument, (ast.Tuple, ast.List)):
        return [name for item in argument.elts for name in _given(item)]
    return [ast.unparse(argument) if isinstance(argument, (ast.Name, ast.Attribute)) else ""]


def _statement(operation: Operation) -> ast.stmt | None:
    where = source.instruction_range(operation.user_code, operation.user_lasti)
    return source.statement_at(operation.user_code.co_filename, where[0]) if where else None


def _names(statement: ast.stmt | None, context: type[ast.expr_context]) -> list[str]:
    if statement is None or hasattr(statement, "body"):
        return []
    found = []
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, context):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.AugAssign):
            found.append(ast.unparse(node.target))
    return list(dict.fromkeys(found))


def _operand_name(crash: Crash, operation: Operation | None, older: typing.Any) -> tuple[str, bool]:
    """The operand of the newer operation that was made by the older one, as the source calls it; or else the list that it is in."""
    if operation is None:
        return "", False
    number = sequence_of(older)
    for position, mark in enumerate(operation.operands):
        producer = crash.timeline.producer(mark.ident, mark.storage, operation.index)
        if producer is not None and producer.sequence <= number < producer.sequence_after:
            name = operand_name(crash, operation, position)
            if name:
                others = (other for other in range(len(operation.operands)) if other != position)
                in_list = any(operand_name(crash, operation, other) == name for other in others if _in_one_list(operation, position, other))
                return name, in_list or _is_summed(operation) or _is_joined(operation)
    return "", False


def _in_one_list(operation: Operation, one: int, other: int) -> bool:
    return max(one, other) < len(operation.arguments) and operation.arguments[one] == operation.arguments[other]


def _is_summed(operation: Operation) -> bool:
    """Python's own `sum(losses)` adds the elements one by one."""
    call = node_at(operation.code, operation.lasti)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "sum"


def _is_joined(operation: Operation) -> bool:
    """`torch.stack(self.slots)`, which may have but one element yet."""
    call = node_at(operation.code, operation.lasti)
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return operation.name in _JOINS and isinstance(given, (ast.Name, ast.Attribute, ast.Subscript))


def _result_of(node: typing.Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of what a node returned, from the metadata it keeps for its incoming gradient."""
    try:
        metadata = node._input_metadata[0]
        return tuple(int(size) for size in metadata.shape), dtype_name(metadata.dtype)
    except Exception:
        return (), ""
