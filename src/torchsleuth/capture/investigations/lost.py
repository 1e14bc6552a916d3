"""Where the gradient was lost: from a root without history back to the operations that cut it off.

With the operation log this is a walk over what was observed: an operation whose inputs required grad and whose
result does not is a cut. Values that pass through Python numbers or numpy leave the log; there the names in the
source lead on, within one function.
"""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.investigations.backward_root import made_at, offending_root, root_fact
from torchsleuth.capture.syntax import (
    covers,
    enclosing_no_grad,
    feeding_statements,
    node_at,
    operand_expressions,
    simple_text,
    switches_grad_off,
)
from torchsleuth.evidence import GradientCut, LostGradient, Place, TensorFact
from torchsleuth.model import Known
from torchsleuth.probe.tensors import dtype_name, storage_of
from torchsleuth.record.oplog import Mark, Operation

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
    cuts = _Search(crash).from_root(root)
    if not cuts and made is None:
        cuts = _by_syntax(crash)
    parameters = [(named.name, named.tensor) for named in crash.names.all() if named.kind == "parameter"]
    return LostGradient(
        root_fact(crash, root),
        call,
        made,
        tuple(cuts),
        tuple(name for name, tensor in parameters if not tensor.requires_grad),
        sum(tensor.requires_grad for _, tensor in parameters),
        torch.is_grad_enabled(),
    )


class _Search:
    def __init__(self, crash: Crash) -> None:
        self._crash = crash
        self._timeline = crash.timeline
        self._latest: dict[tuple[int, int], list[Operation]] = {}
        for operation in self._timeline.operations:
            for mark in operation.results:
                self._latest.setdefault((mark.ident, mark.storage), []).append(operation)
        self._to_python = [op for op in self._timeline.operations if op.name in _TO_PYTHON]

    def from_root(self, root: torch.Tensor) -> list[GradientCut]:
        producer = self._producer(id(root), storage_of(root), None)
        # With each operation the one of its results that leads to the root: of `max` and `topk` it may be the indices.
        pending = [(producer, (id(root), storage_of(root)))] if producer is not None else []
        seen: set[int] = set()
        cuts: list[GradientCut] = []
        while pending and len(seen) < _MOST_STEPS:
            operation, wanted = pending.pop()
            if operation.index in seen:
                continue
            seen.add(operation.index)
            losing = next((mark for mark in operation.operands if mark.requires_grad), None)
            if operation.name == "requires_grad_":
                continue  # frozen there, by intent: no value is lost
            leading = [mark for mark in operation.results if (mark.ident, mark.storage) == wanted] or list(operation.results)
            if losing is not None and not any(mark.requires_grad for mark in leading):
                cut = self._cut(operation, losing, leading)
                if cut is not None and all(cut.place.span != other.place.span for other in cuts):
                    cuts.append(cut)
                continue
            unknown = operation.name in _COPIES
            for mark in operation.operands:
                producer = self._producer(mark.ident, mark.storage, operation.index)
                if producer is not None:
                    pending.append((producer, (mark.ident, mark.storage)))
                elif self._crash.names.by_id(mark.ident) is None or not mark.is_leaf:
                    unknown = True  # made where the log does not see: `torch.from_numpy`, for example
            if unknown:
                pending.extend((conversion, (0, 0)) for conversion in self._through_python(operation))
        # Labels, samples and counts are integers by nature. Where a path of real numbers is cut too, that is the one meant.
        meant = [cut for cut in cuts if cut.reason != "integer"]
        return meant or cuts

    def _producer(self, ident: int, storage: int, before: int | None) -> Operation | None:
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
        found = []
        for conversion in self._to_python:
            if conversion.index >= operation.index or conversion.code.co_filename != operation.code.co_filename:
                continue
            place = self._timeline.place_of_operation(conversion)
            if place is not None and any(covers(place, operation.code, statement) for statement in statements):
                found.append(conversion)
        return found

    def _cut(self, operation: Operation, losing: Mark, results: list[Mark]) -> GradientCut | None:
        place = self._timeline.place_of_operation(operation)
        if place is None:
            return None
        wrapper = self._wrapper(operation) if not operation.grad_enabled else None
        return GradientCut(operation.name, self._reason(operation, results), place, self._fact(operation, losing), wrapper)

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
        kinds = {dtype_name(mark.dtype) for mark in results}
        if kinds and not any(kind.startswith(("float", "bfloat", "complex")) for kind in kinds):
            return "integer"
        return "not differentiable"

    def _wrapper(self, operation: Operation) -> Place | None:
        for code, lasti in operation.stack:
            node = enclosing_no_grad(code, lasti)
            if node is not None:
                return source.place_of_node(code, node, Known.OBSERVED)
        return None

    def _fact(self, operation: Operation, mark: Mark) -> TensorFact:
        named = self._crash.names.by_id(mark.ident)
        if named is not None and storage_of(named.tensor) == mark.storage and self._is_still(named.tensor, operation, mark):
            return self._crash.names.fact(named.tensor)
        position = operation.operands.index(mark)
        expressions = [e for e in operand_expressions(node_at(operation.code, operation.lasti)) if not isinstance(e, ast.Constant)]
        name = ""
        if len(expressions) >= len(operation.operands) and position < len(expressions):
            name = simple_text(expressions[position])
        return TensorFact(name, mark.shape, dtype_name(mark.dtype), str(mark.device), mark.requires_grad, mark.is_leaf)


    def _is_still(self, tensor: torch.Tensor, operation: Operation, mark: Mark) -> bool:
        """The tensor that took part then, and not a later one that got its place in memory."""
        if (tuple(tensor.shape), tensor.requires_grad) != (mark.shape, mark.requires_grad):
            return False
        later = [op for op in self._latest.get((mark.ident, mark.storage), []) if op.index > operation.index]
        return all(any(given.ident == mark.ident for given in op.operands) for op in later)


# -- without the log ------------------------------------------------------------------------------

_CUTTING_CALLS = {
    "detach": "detach", "item": "python", "tolist": "python", "numpy": "python", "tensor": "copy", "argmax": "integer",
    "argmin": "integer", "argsort": "integer", "long": "integer", "int": "integer", "bool": "integer",
}  # fmt: skip


def _by_syntax(crash: Crash) -> list[GradientCut]:
    """The log was no longer watching: what the statements that feed the loss, in the same function, say by themselves."""
    entry = crash.user_entry()
    if entry is None:
        return []
    frame, lasti = entry
    code = frame.f_code
    call = node_at(code, lasti)
    if not isinstance(call, ast.Call):
        return []
    own = source.statement_at(code.co_filename, call.lineno)
    cuts = []
    for statement in [*feeding_statements(code, call, call.lineno), own]:
        if statement is None:
            continue
        wrapper = source_of_wrapper(code, statement)
        for node in ast.walk(statement):
            reason = _cutting(node)
            if reason is not None:
                place = source.place_of_node(code, node, Known.INFERRED)
                if place is not None:
                    name = called_name(node) if isinstance(node, ast.Call) else "data"
                    cuts.append(GradientCut(name, reason, place, None))
        if wrapper is not None and not cuts:
            place = source.place_of_node(code, statement, Known.INFERRED)
            if place is not None:
                cuts.append(GradientCut("", "no_grad", place, None, source.place_of_node(code, wrapper, Known.INFERRED)))
    # A constructor that is fed bare numbers is no second cut.
    handed = [cut for cut in cuts if cut.reason == "python"]
    return [cut for cut in cuts if cut.reason != "copy"] if handed else cuts


def _cutting(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        reason = _CUTTING_CALLS.get(called_name(node))
        made_of_literals = not any(isinstance(inner, ast.Name) for argument in node.args for inner in ast.walk(argument))
        return None if reason == "copy" and made_of_literals else reason
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return "detach"
    return None


def source_of_wrapper(code: types.CodeType, statement: ast.stmt) -> ast.AST | None:
    """The `no_grad` block around a statement of this code."""
    tree = source.tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.body[0].lineno <= statement.lineno <= (node.end_lineno or 0):
            found = next((item.context_expr for item in node.items if switches_grad_off(item.context_expr)), None)
            if found is not None:
                return found
    return None
