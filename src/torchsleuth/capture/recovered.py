"""The failed operation behind a death on the GPU, put together from a recorded call.

The frames in which it ran are gone, or have gone on: their code and instruction were recorded, and what still lives
(the traceback's frames, the model) fills in the rest. The values are those that the black box saved.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture import compiled
from torchsleuth.capture.blackbox import Judged
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.makers import module_made, owner_of
from torchsleuth.capture.operands import Gathering, Raw
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.trails import Trails, value_choice
from torchsleuth.capture.value_origins import VALUE_COPIES, ValueOrigins, without_copy
from torchsleuth.evidence_forward import FailedOperation, IndexItem, Operand
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.record.blackbox.operations import Allows
from torchsleuth.record.oplog import Mark

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

# The names under which the documentation knows the watched tensor.
_INDEX_NAMES = {
    Allows.ROWS: ("input", "indices"),
    Allows.ALONG_DIM: ("index", "indices"),
    Allows.ALONG_DIM_SIGNED: ("index",),
    Allows.ELEMENTS: ("index",),
    Allows.CLASSES: ("target",),
    Allows.WEIGHT: ("input", "self", "probs"),
    Allows.OUTPUT_AREA: ("indices",),
    Allows.AT_MOST_SOURCE: ("mask",),
    Allows.TRUE: ("input", "self"),
}


class _Gone:
    """Stands in for a frame that no longer exists: its code, the globals of its module, and its module where that can be told."""

    def __init__(self, code: types.CodeType, lasti: int, owner: torch.nn.Module | None) -> None:
        self.f_code, self.f_lasti, self.f_back = code, lasti, None
        self.f_lineno = code.co_firstlineno
        self.f_globals = _globals_of(code)
        self._owner = owner

    @property
    def f_locals(self) -> dict[str, typing.Any]:
        return {"self": self._owner} if self._owner is not None else {}


def operation_of(crash: Crash, found: Judged) -> FailedOperation | None:
    """The recorded call as a failed operation, with the values that break its range."""
    failure = _failure(crash, found)
    place = failure.place()
    if place is None or found.part is None:
        return None
    origins = Origins(failure)
    gathering = Gathering(failure, origins)
    name = _name(found, gathering)
    table = _table(found, gathering, name)
    bad = _bad(found, gathering, name)
    gathering.raws = [raw for raw in (table, bad) if raw is not None]
    if name in ("__getitem__", "__setitem__"):
        bad.argument = f"index[{_axis_position(failure.program.node, found)}]"
    operands = [gathering.operand(raw) for raw in gathering.raws]
    operands[-1] = _with_values(operands[-1], bad, found, name, gathering)
    module = owner_of(failure, _live(crash, found))
    return FailedOperation(
        name,
        place,
        tuple(operands),
        gathering.arguments(),
        _items(failure, found, operands) if name in ("__getitem__", "__setitem__") else (),
        (),
        gathering.paths.modules.get(id(module), "") if module is not None else "",
        type(module).__name__ if module is not None else "",
        module_made(failure, origins.definitions, module) if module is not None else None,
        type=type(crash.error).__name__,
        message=crash.message,
        observed=True,
        training=module.training if module is not None else None,
        config=_config(crash, found),
    )


def _failure(crash: Crash, found: Judged) -> Failure:
    """The traceback's live frames as far as the user's, then the recorded call's own, living or gone."""
    entry = found.entry
    frames = [(frame, lasti) for frame, lasti in crash.entries]
    wanted = [entry.user] if entry.user == entry.program else [entry.user, entry.program]
    made: list[tuple[typing.Any, int]] = []
    live = next((position for position, (frame, _) in enumerate(frames) if frame.f_code is wanted[0][0]), None)
    for position, (code, lasti) in enumerate(wanted):
        if position == 0 and live is not None:
            made.append((frames[live][0], lasti))
        else:
            made.append((_Gone(code, lasti, _owner(crash, found, code)), lasti))
    outer = frames[:live] if live is not None else frames
    entries = [Entry(frame, lasti, position) for position, (frame, lasti) in enumerate([*outer, *made])]
    program = entries[-1]
    user = entries[-len(made)] if entries[-len(made)].origin is Origin.USER else None
    failure = Failure(crash, entries, program, user)
    failure.recorded = entry.watched.name
    return failure


def _owner(crash: Crash, found: Judged, code: types.CodeType) -> torch.nn.Module | None:
    """The module in whose method this code ran: of the right class, and with the table among its parameters."""
    table = _live(crash, found)
    fitting = []
    for _, root in crash.names.modules:
        for module in root.modules():
            method = getattr(type(module), code.co_name, None)
            if getattr(method, "__code__", None) is code:
                if table is not None and any(table is parameter for parameter in module.parameters()):
                    return module
                fitting.append(module)
    return fitting[0] if len(fitting) == 1 else None


def _live(crash: Crash, found: Judged) -> torch.Tensor | None:
    """The table itself, where something in sight still holds it."""
    named = crash.names.by_id(found.entry.table)
    if named is None or named.tensor.shape != found.entry.table_shape:
        return None
    if found.entry.table_dtype is not None and named.tensor.dtype != found.entry.table_dtype:
        return None
    return named.tensor


def _name(found: Judged, gathering: Gathering) -> str:
    """As the user called it: `one_hot` where that ran `scatter_`."""
    watched, call = found.entry.watched, gathering.program_call
    own = call.name if call is not None else ""
    if own in ("one_hot", "take_along_dim", "index_fill", "scatter", "bernoulli", "cross_entropy", "nll_loss", "embedding_bag"):
        return own
    within = found.entry.within
    return within if within in ("embedding", "cross_entropy", "nll_loss", "embedding_bag", "one_hot") else watched.name


def _mark(ident: int, storage: int, shape: typing.Any, dtype: torch.dtype | None, device: int) -> Mark:
    where = torch.device("cuda", device) if device >= 0 else torch.device("cpu")
    return Mark(ident, storage, tuple(shape), (), 0, dtype, where, -1, False, True)


def _table(found: Judged, gathering: Gathering, name: str) -> Raw | None:
    entry = found.entry
    if entry.watched.allows in (Allows.PROBABILITY, Allows.WEIGHT, Allows.TRUE, Allows.COMPILED) or name == "one_hot":
        return None
    live = _live(gathering.failure.crash, found)
    argument = {Allows.ROWS: "weight", Allows.CLASSES: "input", Allows.AT_MOST_SOURCE: "source"}.get(entry.watched.allows, "self")
    given = _given(gathering, found, ("weight",) if argument == "weight" else ("source",) if argument == "source" else ("self", "input"), entry.table_shape)
    node, at = (given.node, gathering.failure.program) if given is not None else (None, None)
    mark = _mark(entry.table, 0, entry.table_shape, entry.table_dtype, entry.device)
    if live is not None:
        mark = mark._replace(dtype=live.dtype, requires_grad=live.requires_grad, is_leaf=live.is_leaf)
    return Raw(argument, node, at, live, mark)


def _bad(found: Judged, gathering: Gathering, name: str) -> Raw:
    entry, part = found.entry, found.part
    assert part is not None
    names = _INDEX_NAMES.get(entry.watched.allows, ())
    if entry.watched.allows is Allows.PROBABILITY:
        names = ("p", "input", "self") if entry.watched.name == "bernoulli" else ("input", "target")[part.argument : part.argument + 1]
    shape, tensor = tuple(part.shape), found.tensor
    if name == "one_hot":  # it adds a dimension of size 1 before it scatters
        names, shape = ("tensor", "input", "self"), shape[:-1]
        tensor = tensor.squeeze(-1) if tensor is not None else None
    node, element = None, None
    if entry.watched.allows is Allows.COMPILED:
        node, element, named = compiled.written_as(gathering.failure.program.node, compiled.given_of(found))
        names = (named or "input",)
    elif entry.watched.allows is Allows.INDEXED:
        node = _index_node(gathering.failure.program.node, found)
    else:
        given = _given(gathering, found, names, shape)
        node = given.node if given is not None else None
    mark = _mark(part.ident, part.storage, shape, part.dtype, entry.device)
    argument = names[0] if names else "index"
    return Raw(argument, node, gathering.failure.program if node is not None else None, tensor, mark, Known.OBSERVED, element, recomputed=True)


def _given(gathering: Gathering, found: Judged, names: tuple[str, ...], shape: typing.Any) -> typing.Any:
    """The argument of the program's call under one of these names, unless what lives there has another shape."""
    call = gathering.program_call
    if call is None:
        return None
    watched, within = found.entry.watched, found.entry.within
    given = list(call.given)
    if not call.is_torchs and call.module is None and within:
        # A layer or loss in a frame that is gone: `self.table(ids)`, `criterion(scores, labels)`. What is called is not
        # known, but that torch's own `embedding` or `cross_entropy` was next is.
        order = ("input",) if within in ("embedding", "embedding_bag") else ("input", "target")
        given = [dataclasses.replace(item, name=item.name or name) for item, name in zip(given, order)] if len(given) == len(order) else []
    elif call.module is not None:
        if not type(call.module).__module__.startswith("torch.nn.modules"):
            return None  # the user's own module: its arguments are not the operator's
    elif call.name.strip("_") not in (watched.name.strip("_"), within.strip("_"), watched.operator.partition(".")[0].strip("_"), "one_hot", "take_along_dim"):
        return None
    for item in given:
        if item.name in names and item.node is not None:
            if not isinstance(item.value, torch.Tensor) or tuple(item.value.shape) == tuple(shape):
                return item
    return None


# -- x[i, j] ------------------------------------------------------------------------------------------


def _subscript(node: ast.AST | None) -> ast.Subscript | None:
    if isinstance(node, ast.AugAssign):
        node = node.target
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        node = node.targets[0]
    return node if isinstance(node, ast.Subscript) else None


def _index_nodes(node: ast.AST | None) -> list[ast.AST]:
    subscript = _subscript(node)
    if subscript is None:
        return []
    return list(subscript.slice.elts) if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]


def _axis_position(node: ast.AST | None, found: Judged) -> int:
    """Which of the written indices belongs to the recorded one: by order among those that can be tensors."""
    parts = [part for part in found.entry.parts]
    order = parts.index(found.part) if found.part in parts else 0
    able = [k for k, item in enumerate(_index_nodes(node)) if not isinstance(item, (ast.Slice, ast.Constant))]
    return able[order] if len(able) == len(parts) else 0


def _index_node(node: ast.AST | None, found: Judged) -> ast.AST | None:
    nodes = _index_nodes(node)
    able = [item for item in nodes if not isinstance(item, (ast.Slice, ast.Constant))]
    if len(able) != len(found.entry.parts):
        return nodes[0] if len(nodes) == 1 else None
    return able[found.entry.parts.index(found.part)] if found.part in found.entry.parts else None


def _items(failure: Failure, found: Judged, operands: list[Operand]) -> tuple[IndexItem, ...]:
    node, part = _index_node(failure.program.node, found), found.part
    if node is None or part is None or part.axis is None:
        return ()
    filename = failure.program.code.co_filename
    return (
        IndexItem(
            source.text_of(filename, source.node_range(filename, node)),
            "tensor",
            source.place_of_node(failure.program.code, node, Known.OBSERVED),
            part.axis,
            None,
            found.entry.table_shape[part.axis],
            None,
            tuple(part.shape),
            len(operands) - 1,
        ),
    )


# -- facts ----------------------------------------------------------------------------------------------


def _with_values(operand: Operand, raw: Raw, found: Judged, name: str, gathering: Gathering) -> Operand:
    values = found.values
    if values is None:
        return operand
    if name == "one_hot":
        first = tuple(dataclasses.replace(item, position=item.position[:-1]) for item in values.first)
        values = dataclasses.replace(values, first=first, limit="num_classes")
    made, origins = None, gathering.origins
    if raw.mark is not None and origins.log_reaches and values.first:
        made = ValueOrigins(gathering.failure, origins).value(raw.mark, values.first[0], lambda mark: None)
    if made is None and raw.node is not None and raw.entry is not None and not isinstance(raw.entry.frame, _Gone):
        made = Trails(origins.definitions).follow(raw.entry, raw.node, value_choice(VALUE_COPIES))
    return dataclasses.replace(operand, values=values, value_made=without_copy(made or operand.made))


def _config(crash: Crash, found: Judged) -> tuple[tuple[str, int], ...]:
    from torchsleuth.capture.configured import configured

    table = _live(crash, found)
    for _, root in crash.names.modules:
        if table is None or any(table is parameter for parameter in root.parameters()):
            return configured(root)
    return ()


def _globals_of(code: types.CodeType) -> dict[str, typing.Any]:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == code.co_filename:
            return module.__dict__
    return {}
