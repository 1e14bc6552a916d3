"""A second backward through a freed graph: what consumed it first, and what carried the old part into the new one."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.keepers import kept_at
from torchsleuth.capture.needless import needless_use
from torchsleuth.capture.syntax import bound_name, node_at, operand_expressions, simple_text
from torchsleuth.capture.writes import values_of
from torchsleuth.evidence import CarriedTensor, FreedGraph, Place, TensorFact
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe import graph
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of
from torchsleuth.probe.tensors import dtype_name
from torchsleuth.record.oplog import Operation
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_CARRIED = 3


def investigate(crash: Crash) -> FreedGraph | None:
    second = crash.place_of_failure()
    if second is None or not crash.roots:
        return None
    root = crash.roots[0]
    before = _earlier_backwards(crash)
    old_nodes = [node for node in crash.nodes if sequence_of(node) < LEAF_SEQUENCE and graph.is_freed(node)]
    first_place, boundary, same_root = None, None, False
    if before and old_nodes:
        oldest = min(sequence_of(node) for node in old_nodes)
        # The graph was consumed by the first backward after its oldest freed node was made.
        freeing = [item for item in before if not item[3]] or before
        first_place, boundary, _, _ = next((item for item in freeing if item[1] > oldest), freeing[-1])
        same_root = any(item[2] == id(root) for item in before) and boundary > sequence_of(root.grad_fn)
    carried, edges = _carried(crash, boundary) if boundary is not None else ((), [])
    consumed = next((op for op in crash.timeline.operations if op.name in ("backward", "grad") and not op.raised and op.sequence == boundary), None)
    needless = needless_use(crash, edges[0], consumed.index) if len(edges) == 1 and consumed is not None else None
    shared = None
    if not carried and not same_root:
        shared = _shared(crash, before, root)
    failing = shared
    return FreedGraph(
        second,
        first_place,
        len(before),
        carried,
        same_root,
        crash.names.fact(root),
        crash.timeline.place_of_node(failing) if failing is not None else None,
        operation_of(failing.name()) if failing is not None else "",
        *(needless or ()),
    )


def _earlier_backwards(crash: Crash) -> list[tuple[Place, int, int, bool]]:
    """(place, sequence number at that time, id of the root, whether it says that it keeps the graph) of backward calls
    before the failing one, oldest first."""
    logged = [
        (
            place,
            operation.sequence,
            operation.operands[0].ident if operation.operands else 0,
            _keeps_graph(node_at(operation.code, operation.lasti)),
        )
        for operation in crash.timeline.operations
        if operation.name in ("backward", "grad") and not operation.raised
        if (place := crash.timeline.place_of_operation(operation)) is not None
    ]
    if logged:
        return logged
    found = []
    waiting: list[tuple[types.CodeType, Place, int, bool]] = []  # calls whose line is still running
    calls: dict[tuple[int, int], ast.Call | None] = {}
    for event in crash.timeline.events():
        if event.kind is not Kind.LINE or origin_of(event.code) is not Origin.USER:
            continue
        # The number at the start of `model(x).sum().backward()` is that of before the forward pass; at the next line of
        # the same code it is that of the backward, which makes no nodes of its own.
        for code, place, ident, keeps in waiting:
            if code is event.code:
                found.append((place, event.sequence, ident, keeps))
        waiting = [item for item in waiting if item[0] is not event.code]
        key = (id(event.code), event.where)
        if key not in calls:
            statement = source.statement_at(event.code.co_filename, event.where)
            calls[key] = _backward_call(statement) if statement is not None else None
        call = calls[key]
        place = source.place_of_node(event.code, call, Known.INFERRED) if call is not None else None
        if place is not None:
            waiting.append((event.code, place, _receiver(crash, event.code, call), _keeps_graph(call)))
    return found  # the failing call is still waiting


def _keeps_graph(call: ast.AST | None) -> bool:
    """`retain_graph=True`, which `create_graph=True` implies."""
    if not isinstance(call, ast.Call):
        return False
    said = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    return said.get("retain_graph", said.get("create_graph")) is True


def _receiver(crash: Crash, code: types.CodeType, call: ast.Call) -> int:
    """The id of what `x.backward()` stands for now, 0 where `x` cannot be read."""
    if not isinstance(call.func, ast.Attribute) or _counted(code, call):
        return 0
    values = [value for value in values_of(crash, code, call.func.value) if isinstance(value, torch.Tensor)]
    return id(values[0]) if len(values) == 1 else 0


def _counted(code: types.CodeType, call: ast.Call) -> bool:
    """`for loss in losses: loss.backward()`: the name stands for another tensor in every round."""
    names = {node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)}
    tree = source.tree_of(code.co_filename)
    return any(
        isinstance(loop, (ast.For, ast.AsyncFor)) and loop.lineno <= call.lineno <= (loop.end_lineno or loop.lineno)
        and names & {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        for loop in (ast.walk(tree) if tree is not None else ())
    )  # fmt: skip


def _backward_call(statement: ast.stmt) -> ast.Call | None:
    if hasattr(statement, "body"):
        return None
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and called_name(node) == "backward":
            return node
    return None


def _carried(crash: Crash, boundary: int) -> tuple[tuple[CarriedTensor, ...], list[typing.Any]]:
    """Edges from a node made after the first backward to one made before it that is freed or leads to freed ones; and the
    older nodes of these edges."""
    leads_to_freed: dict[int, bool] = {}

    def freed_below(node: typing.Any) -> bool:
        key = id(node)
        if key not in leads_to_freed:
            leads_to_freed[key] = any(graph.is_freed(inner) for inner in graph.walk([node], 20_000))
        return leads_to_freed[key]

    found: list[CarriedTensor] = []
    edges: list[typing.Any] = []
    for node in sorted(crash.nodes, key=sequence_of):
        if not boundary <= sequence_of(node) < LEAF_SEQUENCE:
            continue
        for position, (older, _) in enumerate(node.next_functions):
            if older is None or sequence_of(older) >= boundary or not freed_below(older):
                continue
            edges += [older] if all(older is not other for other in edges) else []
            item = _carried_tensor(crash, older, node, position)
            if all((item.made, item.used) != (other.made, other.used) for other in found):
                found.append(item)
            if len(found) >= _MOST_CARRIED:
                return tuple(found), edges
    return tuple(found), edges


def _carried_tensor(crash: Crash, older: typing.Any, newer: typing.Any, position: int) -> CarriedTensor:
    timeline = crash.timeline
    operation = timeline.operation_of_sequence(sequence_of(newer))
    name = _operand_name(crash, operation, older)
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
    shape, dtype = _result_of(older)
    return CarriedTensor(
        TensorFact(name, shape, dtype, "", True, False, "variable" if name else ""),
        made,
        operation_of(older.name()),
        used,
        operation_of(newer.name()),
        _since(crash, older),
        several,
        kept_at(maker, operation, several or (name,)),
    )


def _augmented(text: str) -> str:
    """`self.total` of `self.total += loss`."""
    try:
        statement = ast.parse(text).body
    except SyntaxError:
        return ""
    return ast.unparse(statement[0].target) if len(statement) == 1 and isinstance(statement[0], ast.AugAssign) else ""


def _since(crash: Crash, node: typing.Any) -> int | None:
    """The line that the function which made this node was at when the oldest freed part of its history was made."""
    place = crash.timeline.place_of_node(node)
    place = place.via if place is not None and place.via is not None else place
    freed = [sequence_of(inner) for inner in graph.walk([node], 20_000) if sequence_of(inner) < LEAF_SEQUENCE and graph.is_freed(inner)]
    if place is None or not freed:
        return None
    line, oldest = None, min(freed)
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


def _operand_name(crash: Crash, operation: Operation | None, older: typing.Any) -> str:
    """The operand of the newer operation that was made by the older one, as the source calls it."""
    if operation is None:
        return ""
    number = sequence_of(older)
    for position, mark in enumerate(operation.operands):
        producer = crash.timeline.producer(mark.ident, mark.storage, operation.index)
        if producer is not None and producer.sequence <= number < producer.sequence_after:
            call = node_at(operation.code, operation.lasti)
            expressions = operand_expressions(call)
            if isinstance(call, ast.Call) and expressions and called_name(call).rstrip("_") != operation.name.rstrip("_"):
                # `self.loss(scores, target)`: a module's call, whose receiver is no operand.
                expressions = [item for item in expressions if not isinstance(call.func, ast.Attribute) or item is not call.func.value]
            expressions = [item for item in expressions if not isinstance(item, ast.Constant)]
            if position < len(expressions) and len(expressions) >= len(operation.operands):
                return simple_text(expressions[position])
    return ""


def _result_of(node: typing.Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of what a node returned, from the metadata it keeps for its incoming gradient."""
    try:
        metadata = node._input_metadata[0]
        return tuple(int(size) for size in metadata.shape), dtype_name(metadata.dtype)
    except Exception:
        return (), ""


def _shared(crash: Crash, before: list[tuple[Place, int, int, bool]], root: torch.Tensor) -> typing.Any:
    """The newest node that this graph shares with one that an earlier backward went through."""
    earlier = {ident for _, _, ident, _ in before if ident}
    for named in crash.names.all():
        if id(named.tensor) in earlier and named.tensor is not root and named.tensor.grad_fn is not None:
            others = {id(node): node for node in graph.walk([named.tensor.grad_fn])}
            common = [node for node in crash.nodes if id(node) in others and sequence_of(node) < LEAF_SEQUENCE]
            if common:
                return max(common, key=sequence_of)
    return None
