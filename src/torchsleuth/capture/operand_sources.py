"""Which expression of the source an operand of a logged call was: only where the call and the source leave no doubt.

A Python number among the operands is not logged, and `rate * x` and `x * rate` are one and the same call of torch's: then the
answer is None, unless the other expression is seen to stand for a number.
"""

from __future__ import annotations

import ast
import numbers
import typing

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.syntax import node_at, operand_expressions, simple_text
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def operand_source(crash: Crash, operation: Operation, position: int) -> ast.expr | None:
    """The expression behind `operation.operands[position]`."""
    node = node_at(operation.code, operation.lasti)
    if isinstance(node, ast.Call):
        return _argument(node, operation, position)
    expressions = [item for item in operand_expressions(node) if not isinstance(item, ast.Constant)]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value if position == 0 else _assigned(node, operation) if position == len(operation.operands) - 1 else None
    if isinstance(node, (ast.AugAssign, ast.Subscript)):
        return expressions[0] if position == 0 else expressions[position] if len(expressions) == len(operation.operands) else None
    if len(expressions) > len(operation.operands):
        expressions = [item for item in expressions if not _is_number(crash, operation, item)]
    return expressions[position] if len(expressions) == len(operation.operands) else None


def _assigned(target: ast.Subscript, operation: Operation) -> ast.expr | None:
    """`value` of `x[i] = value`, where it stands for a tensor: an index that is one, beside a number, leaves it in doubt."""
    statement = source.statement_at(operation.code.co_filename, target.lineno)
    if not isinstance(statement, ast.Assign) or not any(ast.dump(item) == ast.dump(target) for item in statement.targets):
        return None
    return statement.value if isinstance(statement.value, (ast.Name, ast.Attribute)) and operation.index_used is not None else None


def operand_name(crash: Crash, operation: Operation, position: int) -> str:
    """As the source calls it, "" where it has no name there."""
    return simple_text(operand_source(crash, operation, position))


def _is_number(crash: Crash, operation: Operation, expression: ast.expr) -> bool:
    """Put together from numbers alone: literals, and variables that hold one now, wherever they can be read."""
    if isinstance(expression, ast.Constant):
        return True
    if isinstance(expression, ast.BinOp):
        return _is_number(crash, operation, expression.left) and _is_number(crash, operation, expression.right)
    if isinstance(expression, ast.UnaryOp):
        return _is_number(crash, operation, expression.operand)
    if isinstance(expression, ast.Call):
        return called_name(expression) in ("float", "int", "len", "item")
    values = values_of(crash, operation.code, expression)
    return bool(values) and all(isinstance(value, numbers.Number) for value in values)


def _argument(call: ast.Call, operation: Operation, position: int) -> ast.expr | None:
    given: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    if called_name(call).strip("_") != operation.name.strip("_"):
        # `self.loss(scores, target)`: a module or helper, whose arguments need not be the operands of what it calls.
        given = [item for item in given if not isinstance(item, ast.Constant)]
        return given[position] if len(given) == len(operation.operands) else None
    own = operand_expressions(call)
    at = operation.arguments[position]
    positional = len(own) - len(call.keywords)
    if at < positional:
        return _element(own[at], operation, position)
    return own[at] if len(own) == len(operation.operands) else None  # keywords come in an order of their own


def _element(expression: ast.expr, operation: Operation, position: int) -> ast.expr:
    """`self.keys` of `[self.keys, key]`, where all elements of the list are tensors."""
    at = operation.arguments[position]
    if not isinstance(expression, (ast.List, ast.Tuple)) or operation.arguments.count(at) != len(expression.elts) or any(isinstance(item, ast.Starred) for item in expression.elts):
        return expression
    return expression.elts[position - operation.arguments.index(at)]
