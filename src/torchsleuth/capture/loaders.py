"""The DataLoader behind a batch, where the loop over it is still running: its constructor call, its batch size, the sample's expression."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.finished import node_in
from torchsleuth.capture.returns import returned_part
from torchsleuth.capture.samples import kind_of_samples, part_made
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.definitions import Definitions
    from torchsleuth.capture.failure import Entry, Failure

_CONVERSIONS = frozenset({"to", "cuda", "cpu", "float", "double", "half", "long", "int", "bool", "contiguous", "clone", "detach"})
_JOINS = frozenset({"stack", "tensor", "as_tensor"})  # what torch's own collate function calls


class Loop(typing.NamedTuple):
    entry: Entry
    target: ast.expr
    over: ast.expr  # the expression for the loader
    loader: torch.utils.data.DataLoader | None  # None where it stands in the loop itself: `for x, y in DataLoader(…)`
    dataset: type | None  # its class; None where samples are joined by a function of the program's


class Loaders:
    def __init__(self, failure: Failure, definitions: Definitions) -> None:
        self._failure, self._definitions = failure, definitions
        self.smaller_batch = ""  # in words, where a size was followed to the last batch

    def loop_of(self, operation: Operation) -> Loop | None:
        """The running loop in which torch joined samples to a batch by this call."""
        node = node_in(operation.user_code, operation.user_lasti) if operation.name in _JOINS else None
        if isinstance(node, ast.expr):  # from Python 3.12 on the instruction has the place of what is looped over
            statement = source.statement_at(operation.user_code.co_filename, node.lineno)
            node = statement if isinstance(statement, (ast.For, ast.AsyncFor)) and any(inner is node for inner in ast.walk(statement.iter)) else None
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            return None
        entry = next((e for e in self._failure.entries if e.code is operation.user_code and e.origin is Origin.USER), None)
        return _loop(entry, node) if entry is not None else None

    def made(self, operation: Operation, axis: int, size: int) -> tuple[Made | None, str]:
        """For the number of samples in a batch: the constructor of the loader, with what set the number; and words for a smaller batch."""
        loop = self.loop_of(operation) if axis == 0 else None
        return self._samples(loop, size) if loop is not None else (None, "")

    def _samples(self, loop: Loop, size: int) -> tuple[Made | None, str]:
        made = self._definitions.made(loop.entry, loop.over)
        call = loop.over if isinstance(loop.over, ast.Call) else self._constructor(loop)
        if made is None or call is None or made.operation != "DataLoader":
            return None, ""
        batch = loop.loader.batch_size if loop.loader is not None else None
        if batch is not None and size < batch:
            return made, f"A batch has {batch} samples here, this one has {size}: it is the last of the loader, which is smaller."
        return made, ""

    def batch(self, entry: Entry, node: ast.AST, axis: int | None, size: int) -> Made | None:
        """For a variable of a running loop over a loader, or an entry of it, where no log saw the batch: the loader for its number of samples
        (`axis` 0), else what the dataset or the loader's own function returns for it."""
        is_entry = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        name = node.value if isinstance(node, ast.Subscript) and is_entry else node
        scope = function_node(entry.code)
        if not isinstance(name, ast.Name) or scope is None:
            return None
        found = self._definitions.step(entry, name)
        value = found[1] if found is not None and found[0] is entry else None
        if axis is not None and value is not None and _is_converted(value, name.id):  # `x = x.to(device)`
            before = {id(bound[2]): bound[2] for bound in bindings(scope) if bound[0] == name.id and not _is_converted(bound[2], name.id)}
            value = next(iter(before.values())) if len(before) == 1 else None
        statements = [s for s in ast.walk(scope) if isinstance(s, (ast.For, ast.AsyncFor)) and s.iter is value]
        loop = _loop(entry, statements[0]) if len(statements) == 1 else None
        if loop is None:
            return None
        if axis == 0:
            made, words = self._samples(loop, size)
            self.smaller_batch = words or self.smaller_batch
            return made
        key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
        names = [getattr(element, "id", "") for element in getattr(loop.target, "elts", ())]
        key = names.index(name.id) if names.count(name.id) == 1 else key
        if loop.dataset is not None:
            return part_made(loop.dataset, key)
        joins = loop.loader.collate_fn if loop.loader is not None else None
        part = returned_part(joins.__code__, key) if isinstance(joins, types.FunctionType) and origin_of(joins.__code__) is Origin.USER else None
        place = source.place_of_node(joins.__code__, part, Known.INFERRED) if part is not None and joins is not None else None
        return Made("collate", place) if place is not None else None

    def _constructor(self, loop: Loop) -> ast.Call | None:
        entry, node = loop.entry, loop.over
        for _ in range(6):
            if isinstance(node, ast.Call):
                return node
            found = self._definitions.step(entry, node)
            if found is None:
                return None
            entry, node = found
        return None

    def sample(self, operation: Operation) -> Made | None:
        """The expression that the dataset returns for the part of its samples that became this batch."""
        loop = self.loop_of(operation)
        if loop is None or not operation.results or loop.dataset is None:
            return None
        key = _key(loop, operation.results[0].ident)
        return part_made(loop.dataset, key[0]) if key is not None else None


def _loop(entry: Entry, statement: ast.For | ast.AsyncFor) -> Loop | None:
    target, over = statement.target, statement.iter
    while isinstance(over, ast.Call) and over.args and getattr(over.func, "id", "") in ("enumerate", "tqdm"):
        if getattr(over.func, "id", "") == "enumerate":
            if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != 2:
                return None
            target = target.elts[1]
        over = over.args[0]
    evaluator = entry.evaluator
    if isinstance(over, ast.Call):
        if evaluator.value(over.func) is not torch.utils.data.DataLoader:
            return None
        given = over.args[0] if over.args and not any(keyword.arg == "collate_fn" for keyword in over.keywords) else None
        kind = evaluator.value(given.func) if isinstance(given, ast.Call) else kind_of_samples(evaluator.value(given)) if given is not None else None
        return Loop(entry, target, over, None, kind if isinstance(kind, type) else None)
    loader = evaluator.value(over)
    if not isinstance(loader, torch.utils.data.DataLoader):
        return None
    return Loop(entry, target, over, loader, kind_of_samples(loader.dataset) if loader.collate_fn is torch.utils.data.default_collate else None)


def _is_converted(value: ast.AST, name: str) -> bool:
    """`x.to(device)`, of an `x` that it is then given to; also as one of several."""
    if isinstance(value, ast.Tuple):
        return any(_is_converted(part, name) for part in value.elts)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _CONVERSIONS and getattr(value.func.value, "id", "") == name


def _key(loop: Loop, ident: int) -> tuple[int | str | None] | None:
    """Which part of the batch a tensor is: a position among the loop's variables, or a key of the one."""
    scope = locals_of(loop.entry.frame)
    if isinstance(loop.target, ast.Name):
        batch = scope.get(loop.target.id)
        if id(batch) == ident:
            return (None,)
        parts = batch.items() if isinstance(batch, dict) else enumerate(batch) if isinstance(batch, (list, tuple)) else ()
        return next(((key,) for key, part in parts if id(part) == ident), None)
    names = [getattr(element, "id", "") for element in getattr(loop.target, "elts", ())]
    return next(((position,) for position, name in enumerate(names) if name and id(scope.get(name)) == ident), None)
