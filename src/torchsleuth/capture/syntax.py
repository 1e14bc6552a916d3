"""Readings of the syntax around a place: what an operation was applied to, what its result was bound to."""

from __future__ import annotations

import ast
import re
import types
import typing

from torchsleuth import source
from torchsleuth.capture.alignment import called_name, kinds_of, normal_kind
from torchsleuth.evidence import Place


def node_at(code: types.CodeType, lasti: int) -> ast.AST | None:
    where = source.instruction_range(code, lasti)
    node = source.expression_at(code.co_filename, where) if where else None
    return node.value if isinstance(node, ast.Expr) else node


def operand_expressions(node: ast.AST | None) -> list[ast.expr]:
    """The operands of an operation in the order torch gets them: receiver first, then arguments."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    if isinstance(node, ast.Call):
        operands = list(node.args) + [keyword.value for keyword in node.keywords]
        if isinstance(node.func, ast.Attribute) and not _is_namespace(node.func.value):
            operands.insert(0, node.func.value)
        return operands
    return []


def _is_namespace(node: ast.expr) -> bool:
    """`torch.relu`, `F.relu`, `torch.nn.functional.relu`: what stands before the dot is no tensor."""
    text = ast.unparse(node)
    return bool(re.fullmatch(r"(torch|F|nn|functional|np|numpy)(\.\w+)*", text))


def bound_name(code: types.CodeType, lasti: int) -> str:
    """What the statement binds the expression's value to, where the expression is all of its right side."""
    where = source.instruction_range(code, lasti)
    if where is None:
        return ""
    statement = source.statement_at(code.co_filename, where[0])
    if isinstance(statement, ast.AugAssign):
        return ast.unparse(statement.target)
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and value is not None:
        if source.node_range(code.co_filename, value) == where:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if len(targets) == 1 and isinstance(targets[0], (ast.Name, ast.Attribute)):
                return ast.unparse(targets[0])
    return ""


def simple_text(node: ast.AST | None) -> str:
    """The text of a name, attribute or subscript; "" for anything longer, which is no name."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        text = ast.unparse(node)
        return text if len(text) <= 40 else ""
    return ""


_POSITIONS = {"self": 0, "input": 0, "other": 1, "mat2": 1, "exponent": 1, "target": 1}


def saved_name(code: types.CodeType, lasti: int, operation: str, slot: str) -> str:
    """What the user calls the tensor that `operation` saved as `self`, `other`, `result` …, by its expression.

    Only where the expression is that very operation: the arguments of a module or helper need not be its operands.
    """
    node = node_at(code, lasti)
    if node is None or normal_kind(operation) not in kinds_of(node):
        return ""
    if slot in ("result", "output", "out"):
        return bound_name(code, lasti)
    if isinstance(node, ast.Call) and called_name(node).strip("_").replace("_", "").lower() != normal_kind(operation):
        return ""
    operands = operand_expressions(node)
    position = _POSITIONS.get(slot)
    return simple_text(operands[position]) if position is not None and position < len(operands) else ""


def enclosing_no_grad(code: types.CodeType, lasti: int) -> ast.AST | None:
    """The `with torch.no_grad():` around an instruction, or the decorator of its function."""
    where = source.instruction_range(code, lasti)
    tree = source.tree_of(code.co_filename)
    if where is None or tree is None:
        return None
    best: ast.AST | None = None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        body_first, body_last = node.body[0].lineno, node.end_lineno or node.lineno
        if not body_first <= where[0] <= body_last:
            continue
        if isinstance(node, (ast.With, ast.AsyncWith)):
            found = next((item.context_expr for item in node.items if switches_grad_off(item.context_expr)), None)
        else:
            found = next((decorator for decorator in node.decorator_list if switches_grad_off(decorator)), None)
            best = None  # an outer function's `with` says nothing about this one
        best = found or best
    return best


def switches_grad_off(node: ast.expr) -> bool:
    call = node if isinstance(node, ast.Call) else None
    function = call.func if call else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in ("no_grad", "inference_mode"):
        return not (call and call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value is False)
    if name == "set_grad_enabled":
        return bool(call and call.args) and not (isinstance(call.args[0], ast.Constant) and call.args[0].value is True)
    return False


def feeding_statements(code: types.CodeType, expression: ast.AST, line: int) -> list[ast.stmt]:
    """Statements of the same function that (transitively) feed the names used in an expression."""
    tree = source.tree_of(code.co_filename)
    scope = _scope_of(tree, line) if tree is not None else None
    if scope is None:
        return []
    wanted = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
    found: list[ast.stmt] = []
    statements = [n for n in ast.walk(scope) if isinstance(n, ast.stmt) and not isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    changed = True
    while changed:
        changed = False
        for statement in statements:
            if statement in found:
                continue
            written = _bound_names(statement)
            if written & wanted:
                found.append(statement)
                wanted |= {n.id for n in ast.walk(_right_side(statement)) if isinstance(n, ast.Name)}
                changed = True
    return found


def _scope_of(tree: ast.AST, line: int) -> ast.AST:
    best: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0):
            best = node
    return best


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "add", "insert", "update"):
            return {n.id for n in ast.walk(function.value) if isinstance(n, ast.Name)}
        return set()
    elif isinstance(statement, ast.For):
        targets = [statement.target]
    else:
        return set()
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _right_side(statement: ast.stmt) -> ast.AST:
    if isinstance(statement, ast.For):
        return statement.iter
    return getattr(statement, "value", None) or statement


def covers(place: Place, code: types.CodeType, statement: ast.stmt) -> bool:
    last = statement.end_lineno or statement.lineno
    if isinstance(statement, ast.For):
        last = statement.iter.end_lineno or statement.lineno
    return source.display_name(code.co_filename) == place.span.file and statement.lineno <= place.span.line <= last


def function_of(code: types.CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition that this code was compiled from."""
    tree = source.tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            if code.co_firstlineno in (node.lineno, *(decorator.lineno for decorator in node.decorator_list[:1])):
                return node
    return None


def returns_of(code: types.CodeType) -> list[ast.Return]:
    """The `return` statements of a function, without those of functions inside it."""
    function = function_of(code)
    return [inner for inner in _own_nodes(function) if isinstance(inner, ast.Return)] if function is not None else []


def returns_around(code: types.CodeType, line: int) -> list[ast.Return]:
    """Those of the function that a line of this code stands in: for a comprehension, the one around it."""
    tree = source.tree_of(code.co_filename)
    scope = function_of(code) or (_scope_of(tree, line) if tree is not None else None)
    return [inner for inner in _own_nodes(scope) if isinstance(inner, ast.Return)] if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else []


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> typing.Iterator[ast.AST]:
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))
