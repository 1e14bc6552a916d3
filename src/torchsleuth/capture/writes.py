"""Who wrote into a tensor? Three kinds of witness, best first.

The operation log has seen each write with the version before and after. Where it was no longer watching, a write
to a tensor with history has left a node in the graph. A write under `no_grad`, or to a tensor without history, has
left neither: then the lines that ran since, their syntax, and the live objects that share the memory must do, and
what they say is *inferred*.
"""

from __future__ import annotations

import ast
import re
import types
import typing
from dataclasses import dataclass

import torch

from torchsleuth import source
from torchsleuth.capture.inplace_modules import writing_module
from torchsleuth.evidence import Place, WriteSite
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.graph import LEAF_SEQUENCE, operation_of, sequence_of
from torchsleuth.probe.names import locals_of
from torchsleuth.probe.tensors import may_overlap, shares_memory, storage_of
from torchsleuth.record.oplog import Mark, Operation, Write
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_EVENTS = 300_000  # looked back over for the syntax of writes
_VIEWS_WITH_OWN_COUNTER = ("data",)
_NAMESPACES = ("torch", "init", "functional", "F")  # `nn.init.zeros_(weight)` is a function and no method


@dataclass(frozen=True, slots=True)
class Writes:
    sites: tuple[WriteSite, ...]
    complete: bool  # they account for every version step
    candidates: tuple[WriteSite, ...] = ()


def writes_since(crash: Crash, tensor: torch.Tensor, node: typing.Any, version_saved: int, version_now: int) -> Writes:
    """What wrote into this tensor's memory since `node` saved it."""
    sequence = sequence_of(node)
    logged = _logged(crash, tensor, sequence, version_saved, version_now)
    if logged.complete:
        return logged
    from_graph = _from_graph(crash, tensor, sequence, version_now - version_saved)
    if not from_graph.sites:
        from_graph = _from_consumers(crash, node, version_now - version_saved)
    if from_graph.complete:
        return from_graph
    best = logged if len(logged.sites) >= len(from_graph.sites) else from_graph
    found = {site.place.span for site in best.sites}
    reached, unknown = _from_syntax(crash, tensor, sequence)
    candidates = [site for site in reached or unknown if site.place.span not in found]
    # The only line that can have written, or lines that together ran just as often as it was written.
    if not best.sites and (len(candidates) == 1 or reached and sum(site.times for site in candidates) == version_now - version_saved):
        return Writes(tuple(candidates), False)
    return Writes(best.sites, False, tuple(candidates))


# -- the log --------------------------------------------------------------------------------------


def _logged(crash: Crash, tensor: torch.Tensor, sequence: int, saved: int, now: int) -> Writes:
    storage = storage_of(tensor)
    if not storage:
        return Writes((), False)
    by_counter: dict[int, list[tuple[Operation, Write, Mark]]] = {}
    counter_of: dict[int, int] = {}
    counters = 0
    for operation in crash.timeline.operations:
        inside = [mark for mark in operation.operands if mark.storage == storage]
        if operation.sequence > sequence:
            for write in operation.writes:
                mark = operation.operands[write.operand]
                if mark.storage == storage and write.before >= saved and write.after <= now:
                    by_counter.setdefault(counter_of.get(mark.ident, 0), []).append((operation, write, mark))
        for mark in operation.results:
            if mark.storage == storage:
                if operation.name in _VIEWS_WITH_OWN_COUNTER:
                    counters += 1
                    counter_of[mark.ident] = counters
                else:
                    counter_of[mark.ident] = counter_of.get(inside[0].ident, 0) if inside else 0
    best: Writes = Writes((), False)
    own = counter_of.get(id(tensor), 0)
    for _, found in sorted(by_counter.items(), key=lambda item: item[0] != own):
        steps = {step for _, write, _ in found for step in range(write.before, write.after)}
        complete = steps == set(range(saved, now))
        if complete or len(found) > sum(site.times for site in best.sites):
            best = Writes(grouped(crash, tensor, found), complete)
        if complete:
            break
    return best


def grouped(crash: Crash, tensor: torch.Tensor, found: list[tuple[Operation, Write, Mark]]) -> tuple[WriteSite, ...]:
    groups: dict[tuple[int, int, int], list[tuple[Operation, Write, Mark]]] = {}
    for operation, write, mark in found:
        groups.setdefault((id(operation.code), operation.lasti, operation.module), []).append((operation, write, mark))
    sites = []
    for group in groups.values():
        operation = group[0][0]
        place = crash.timeline.place_of_operation(operation)
        if place is None:
            continue
        overlaps = [_overlap(tensor, each, mark) for each, _, mark in group[:64]]
        module, module_class, made = writing_module(crash, operation.module) or ("", "", None)
        sites.append(
            WriteSite(
                operation.name,
                place,
                len(group),
                group[0][1].before,
                group[-1][1].after,
                operation.grad_enabled,
                overlaps=None if None in overlaps else any(overlaps),
                fits_exactly=all(_fits_exactly(each, write, mark) for each, write, mark in group[:64]),
                module=module,
                module_class=module_class,
                made=made,
            )
        )
    return tuple(sites)


def _fits_exactly(operation: Operation, write: Write, mark: Mark) -> bool:
    """An assignment `x[i] = value` that neither broadcasts nor casts nor copies between devices."""
    if operation.name != "__setitem__":
        return False
    region = _assigned_region(operation, mark)
    others = [other for position, other in enumerate(operation.operands) if position != write.operand]
    if region is None or len(others) != 1:
        return False
    return (others[0].shape, others[0].dtype, others[0].device) == (region[0], mark.dtype, mark.device)


def _overlap(tensor: torch.Tensor, operation: Operation, mark: Mark) -> bool | None:
    """Whether the region this call wrote touches the saved tensor's; None where that is not known."""
    shape, strides, offset = mark.shape, mark.strides, mark.offset
    if operation.name == "__setitem__":
        region = _assigned_region(operation, mark)
        if region is None:
            outside = may_overlap((tuple(tensor.shape), tensor.stride(), tensor.storage_offset()), (shape, strides, offset))
            return False if outside is False else None
        shape, strides, offset = region
    return may_overlap((tuple(tensor.shape), tensor.stride(), tensor.storage_offset()), (shape, strides, offset))


def _assigned_region(operation: Operation, mark: Mark) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    if operation.index_used is None:
        return None
    try:
        shadow = torch.empty_strided(mark.shape, mark.strides, device="meta")[operation.index_used]
        return tuple(shadow.shape), shadow.stride(), mark.offset + shadow.storage_offset()
    except Exception:
        return None


# -- the graph --------------------------------------------------------------------------------------


def _from_graph(crash: Crash, tensor: torch.Tensor, sequence: int, steps: int) -> Writes:
    """In-place operations on a tensor with history re-base it on a new node: follow those newer than the save."""
    base = tensor._base if tensor._base is not None else tensor
    node = base.grad_fn
    sites: dict[object, list[tuple[Place, str]]] = {}
    count = 0
    while node is not None and count < steps and sequence < sequence_of(node) < LEAF_SEQUENCE:
        place = crash.timeline.place_of_node(node)
        if place is None:
            return Writes((), False)
        sites.setdefault(place.span, []).append((place, operation_of(node.name())))
        count += 1
        following = node.next_functions
        node = following[0][0] if following else None
    found = tuple(
        WriteSite(group[0][1], group[0][0], len(group), None, None, True) for group in reversed(list(sites.values()))
    )
    return Writes(found, count == steps)


def _from_consumers(crash: Crash, node: typing.Any, steps: int) -> Writes:
    """A node that saved its own result: the writes into that result are the nodes built on it, as long as the source
    shows each to be a write."""
    consumers: dict[int, list[typing.Any]] = {}
    for newer in crash.nodes:
        if newer.next_functions and newer.next_functions[0][0] is not None:
            consumers.setdefault(id(newer.next_functions[0][0]), []).append(newer)
    sites: list[WriteSite] = []
    for _ in range(steps):
        found = []
        for newer in consumers.get(id(node), []):
            place = crash.timeline.place_of_node(newer)
            if place is not None and _WRITING.search(place.source):
                found.append((newer, place))
        if len(found) != 1:
            return Writes(tuple(sites), False)
        node, place = found[0]
        sites.append(WriteSite(operation_of(node.name()), place, 1, None, None, True))
    return Writes(tuple(sites), True)


_WRITING = re.compile(r"^\S+ (\+|-|\*|/|@|//|%|\*\*)= |\.(?!requires_grad_\()[a-z]\w*_\(")


# -- lines, syntax and live objects -----------------------------------------------------------------


def _from_syntax(crash: Crash, tensor: torch.Tensor, sequence: int) -> tuple[list[WriteSite], list[WriteSite]]:
    """Lines that ran since the save and whose syntax is a write: with a target that shares the memory, and with one
    that can no longer be read (its function has returned)."""
    if crash.recording is None:
        return [], []
    times: dict[tuple[int, int], int] = {}
    codes: dict[int, types.CodeType] = {}
    saving: tuple[int, int] | None = None
    for count, event in enumerate(crash.timeline.events_since(sequence)):
        if count == 0:
            saving = (id(event.code), event.where)
        if event.kind is Kind.LINE:
            times[(id(event.code), event.where)] = times.get((id(event.code), event.where), 0) + 1
            codes[id(event.code)] = event.code
        if count > _MOST_EVENTS:
            break
    reached, unknown = [], []
    for (code_id, line), count in times.items():
        code = codes[code_id]
        statement = source.statement_at(code.co_filename, line)
        if statement is None or statement.lineno != line:
            continue
        for target, node, how in written_targets(statement):
            if how == "call" and count == 1 and (code_id, line) == saving:
                continue  # the very call that saved it
            answer = _reaches(crash, code, target, how, tensor)
            place = source.place_of_node(code, node, Known.INFERRED)
            if answer is False or place is None:
                continue
            site = WriteSite(how, place, count, None, None, None, target=ast.unparse(target))
            (reached if answer else unknown).append(site)
    return reached, unknown


def written_targets(statement: ast.stmt) -> typing.Iterator[tuple[ast.expr, ast.AST, str]]:
    """(expression written into, node to show, operation) for every write that the syntax of a statement shows."""
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        yield (target.value if isinstance(target, ast.Subscript) else target), statement, "in-place operator"
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Subscript):
                yield target.value, target, "__setitem__"
    nested = [statement] if not hasattr(statement, "body") else []
    for top in nested:
        for node in ast.walk(top):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            if isinstance(function, ast.Attribute):
                if function.attr.endswith("_") and not function.attr.endswith("__") and function.attr != "requires_grad_":
                    is_function = ast.unparse(function.value).rpartition(".")[2] in _NAMESPACES
                    for written in node.args[:1] if is_function else [_written_through(function.value)]:
                        yield written, node, function.attr
                elif function.attr == "step":
                    yield function.value, node, "step"
                    for argument in node.args[:1]:  # `scaler.step(optimizer)`
                        yield argument, node, "step"
                elif function.attr == "load_state_dict":
                    yield function.value, node, "load_state_dict"
            yield function, node, "call"
            for keyword in node.keywords:
                if keyword.arg == "out":
                    yield keyword.value, node, "out="
                elif keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                    for argument in node.args[:1]:
                        yield argument, node, "inplace=True"


def _written_through(target: ast.expr) -> ast.expr:
    """`x` of `x.mul_(2).add_(1)`: an in-place method returns the tensor that it wrote into."""
    while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr.endswith("_"):
        target = target.func.value
    return target


def _reaches(crash: Crash, code: types.CodeType, target: ast.expr, how: str, tensor: torch.Tensor) -> bool | None:
    """None where the target cannot be read any more."""
    values = values_of(crash, code, target)
    if not values:
        return False if how == "call" or origin_of(code) is not Origin.USER else None
    for value in values:
        if how == "step":
            if isinstance(value, torch.optim.Optimizer) and any(
                shares_memory(parameter, tensor) for group in value.param_groups for parameter in group["params"]
            ):
                return True
        elif how == "load_state_dict":
            if isinstance(value, torch.nn.Module) and any(shares_memory(held, tensor) for held in (*value.parameters(), *value.buffers())):
                return True
        elif how == "call":
            if isinstance(value, torch.nn.Module) and any(getattr(sub, "inplace", False) is True for sub in value.modules()):
                return True
        elif isinstance(value, torch.Tensor) and shares_memory(value, tensor):
            return True
    return False


def values_of(crash: Crash, code: types.CodeType, expression: ast.expr) -> list[object]:
    """What the expression stands for in the live frames of this code, or in live objects of its class."""
    found = []
    for frame, _ in crash.entries:
        if frame.f_code is code:
            scope = {**frame.f_globals, **locals_of(frame)}
            value = _resolved(expression, scope)
            if value is not None:
                found.append(value)
    found.extend(_looped_over(crash, code, expression))
    if not found and isinstance(expression, (ast.Attribute, ast.Subscript, ast.Name)):
        for _, root in crash.names.modules:
            for module in root.modules():
                if _defines(type(module), code):
                    value = _resolved(expression, {"self": module})
                    if value is not None:
                        found.append(value)
    return found


def _looped_over(crash: Crash, code: types.CodeType, expression: ast.expr) -> list[object]:
    """For the variable of `for p in net.parameters():`, every parameter: the variable itself holds only the last one."""
    tree = source.tree_of(code.co_filename)
    if not isinstance(expression, ast.Name) or tree is None:
        return []
    found: list[object] = []
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or not loop.lineno <= expression.lineno <= (loop.end_lineno or loop.lineno):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        call = loop.iter
        if expression.id in names and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr in ("parameters", "named_parameters", "buffers", "named_buffers"):
                for owner in values_of(crash, code, call.func.value):
                    if isinstance(owner, torch.nn.Module):
                        found += [*owner.parameters(), *owner.buffers()]
    return found


def _resolved(expression: ast.expr, scope: dict[str, object]) -> object:
    """Names, attributes of plain objects and constant subscripts only: nothing that could run user code."""
    if isinstance(expression, ast.Name):
        return scope.get(expression.id)
    if isinstance(expression, ast.Attribute):
        owner = _resolved(expression.value, scope)
        if owner is None:
            return None
        if isinstance(owner, torch.nn.Module):
            for table in ("_parameters", "_buffers", "_modules"):
                if expression.attr in owner.__dict__.get(table, {}):
                    return owner.__dict__[table][expression.attr]
        if isinstance(owner, torch.Tensor):
            return owner if expression.attr in ("data", "T", "mT") else None
        return getattr(owner, "__dict__", {}).get(expression.attr)
    if isinstance(expression, ast.Subscript):
        owner = _resolved(expression.value, scope)
        if isinstance(owner, torch.Tensor):
            return owner
        if isinstance(expression.slice, ast.Constant) and isinstance(owner, (list, tuple, dict)):
            try:
                return owner[expression.slice.value]
            except (KeyError, IndexError, TypeError):
                return None
    return None


def _defines(cls: type, code: types.CodeType) -> bool:
    return any(_code_of(value) is code for base in cls.__mro__ for value in vars(base).values())


def _code_of(value: object) -> types.CodeType | None:
    """Of a function, behind decorators such as `torch.no_grad()` too."""
    value = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
    for _ in range(8):
        inner = vars(value).get("__wrapped__") if isinstance(value, types.FunctionType) else None
        if inner is None:
            break
        value = inner
    return getattr(value, "__code__", None)
