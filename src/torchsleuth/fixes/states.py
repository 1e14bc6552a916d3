"""What a loop carries from one round into the next: which variables, what they hold, and how to detach them."""

from __future__ import annotations

import ast
import enum

from torchsleuth.fixes.ordering import feeding
from torchsleuth.fixes.script import Function, Script, called, names_in, path_of
from torchsleuth.model import Edit

_PAIRS = ("LSTM", "LSTMCell")
_NUMBERS = ("item", "float", "int", "len", "tolist", "time", "perf_counter")


class Holds(enum.Enum):
    """What a variable holds, as far as the source says."""

    TENSOR = "tensor"
    PAIR = "tuple"  # of tensors, such as the state of an LSTM
    LIST = "list"
    DICT = "dict"
    OTHER = "other"  # a number, a module, nothing to detach
    UNKNOWN = "unknown"


def carried_names(script: Script, loop: ast.For | ast.While, root: set[str]) -> list[str]:
    """Variables that a loop body reads from the round before, changes, and that feed `root`; containers included."""
    bound: set[str] = set()
    changed: set[str] = set()
    reads_first: list[str] = []
    counted = _loop_variables(loop)
    for statement in _flat(loop.body):
        own = [node for part in _own_parts(statement) for node in ast.walk(part)]
        for node in own:
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                text = path_of(node)
                if text and text not in bound and text not in counted:
                    reads_first.append(text)
            if isinstance(node, ast.AugAssign):
                text = path_of(node.target)
                if text and text not in bound:
                    reads_first.append(text)
        for node in own:
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                bound.add(path_of(node))
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and path_of(node.value):
                changed.add(path_of(node.value))
    fed = feeding(list(_flat(loop.body)), root)
    relevant = root | {text for statement in fed for text in _texts(statement)}
    found = []
    for name in dict.fromkeys(reads_first):
        kind = held(script, loop, name)
        if name not in relevant or name in counted or kind is Holds.OTHER:
            continue
        if name in bound or (name in changed and kind in (Holds.LIST, Holds.DICT)):
            found.append(name)
    return found


def _loop_variables(loop: ast.AST) -> set[str]:
    """What the loop and those inside it count with."""
    found: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            found |= names_in(node.target)
    return found


def _flat(block: list[ast.stmt]):
    for statement in block:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                yield from _flat(inner)
        for handler in getattr(statement, "handlers", ()):
            yield from _flat(handler.body)


def _own_parts(statement: ast.stmt) -> list[ast.AST]:
    """A statement without the blocks in it, which come one statement at a time."""
    if not hasattr(statement, "body"):
        return [statement]
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    return [
        part
        for name, value in ast.iter_fields(statement)
        if name not in ("body", "orelse", "finalbody", "handlers", "cases")
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, ast.AST)
    ]


def _texts(statement: ast.stmt) -> set[str]:
    return {path_of(node) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))}


# -- what it holds --------------------------------------------------------------------------------


def held(script: Script, at: ast.AST, name: str, depth: int = 4) -> Holds:
    """What the assignments in sight say of a variable: those of its own function, for an attribute those of the file."""
    scope = script.tree if "." in name else script.scope_of(at)
    nodes = ast.walk(scope) if "." in name or scope is script.tree else script.own_nodes(scope)
    kinds: list[Holds] = []
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                kinds += _stored(script, node, target, node.value, name, depth)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            kinds += _stored(script, node, node.target, node.value, name, depth)
        elif isinstance(node, ast.AugAssign) and path_of(node.target) == name:
            kinds.append(_of_value(script, node, node.value, depth))
    known = {kind for kind in kinds if kind is not Holds.UNKNOWN}
    for kind in (Holds.PAIR, Holds.LIST, Holds.DICT, Holds.TENSOR):
        if kind in known:
            return kind
    return Holds.OTHER if known == {Holds.OTHER} and Holds.UNKNOWN not in kinds else Holds.UNKNOWN


def _stored(script: Script, statement: ast.stmt, target: ast.expr, value: ast.expr, name: str, depth: int) -> list[Holds]:
    if path_of(target) == name:
        return [_of_value(script, statement, value, depth)]
    if not isinstance(target, (ast.Tuple, ast.List)):
        return []
    for position, item in enumerate(target.elts):
        if path_of(item) == name:
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                return [_of_value(script, statement, value.elts[position], depth)]
            return [_of_call(script, statement, value, position, len(target.elts), depth)]
        if isinstance(item, (ast.Tuple, ast.List)) and name in {path_of(inner) for inner in item.elts}:
            return [Holds.TENSOR]  # `out, (h, c) = lstm(x)`
    return []


def _of_value(script: Script, statement: ast.stmt, value: ast.expr, depth: int) -> Holds:
    if isinstance(value, ast.Tuple):
        return Holds.PAIR
    if isinstance(value, (ast.List, ast.ListComp)) or called(value) == "list":
        return Holds.LIST
    if isinstance(value, (ast.Dict, ast.DictComp)) or called(value) == "dict":
        return Holds.DICT
    if isinstance(value, ast.Constant):
        return Holds.UNKNOWN if value.value is None or value.value == 0 else Holds.OTHER
    if isinstance(value, ast.Call):
        if called(value) in _NUMBERS:
            return Holds.OTHER
        if called(value) == "tuple":
            return Holds.PAIR
        return _of_call(script, statement, value, None, 0, depth)
    if isinstance(value, (ast.Name, ast.Attribute)) and path_of(value) and depth:
        return held(script, statement, path_of(value), depth - 1)
    if isinstance(value, ast.IfExp):
        kinds = {_of_value(script, statement, branch, depth) for branch in (value.body, value.orelse)} - {Holds.UNKNOWN, Holds.OTHER}
        return kinds.pop() if len(kinds) == 1 else Holds.UNKNOWN
    if isinstance(value, ast.BinOp):
        return Holds.UNKNOWN if all(isinstance(n, (ast.Constant, ast.BinOp, ast.operator)) for n in ast.walk(value)) else Holds.TENSOR
    return Holds.UNKNOWN


def _of_call(script: Script, statement: ast.stmt, call: ast.expr, position: int | None, count: int, depth: int) -> Holds:
    """What a call gives: the element at `position` of the `count` it returns, or all of it."""
    if not isinstance(call, ast.Call) or not depth:
        return Holds.UNKNOWN
    made = _class_of(script, statement, call.func)
    if made in _PAIRS:
        # LSTM gives (output, (h, c)); LSTMCell gives (h, c).
        if made == "LSTMCell":
            return Holds.PAIR if position is None else Holds.TENSOR
        return Holds.PAIR if position == 1 and count == 2 else Holds.TENSOR if position == 0 else Holds.UNKNOWN
    if made in ("GRU", "RNN", "GRUCell", "RNNCell", "Linear", "Embedding"):
        return Holds.TENSOR if position is not None or made not in ("GRU", "RNN") else Holds.UNKNOWN
    function = _function_of(script, made, call)
    if function is None:
        module = isinstance(call.func, ast.Attribute) and path_of(call.func.value) == script.module_name("torch")
        return Holds.TENSOR if module and position is None else Holds.UNKNOWN
    returns = [node.value for node in script.own_nodes(function) if isinstance(node, ast.Return) and node.value is not None]
    kinds = set()
    for value in returns:
        if position is None:
            kinds.add(_of_value(script, script.statement_of(value), value, depth - 1))
        elif isinstance(value, ast.Tuple) and len(value.elts) == count:
            kinds.add(_of_value(script, script.statement_of(value), value.elts[position], depth - 1))
    return kinds.pop() if len(kinds) == 1 else Holds.UNKNOWN


def _class_of(script: Script, statement: ast.stmt, function: ast.expr) -> str:
    """The name of the class of what is called: `LSTM` for `self.rnn` after `self.rnn = nn.LSTM(…)`; else what is called itself."""
    name = path_of(function)
    if isinstance(function, ast.Subscript):
        return ""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and any(path_of(target) == name != "" for target in node.targets):
            if not name.startswith("self.") or script.class_of(node) is script.class_of(statement):
                return called(node.value)
    return name


def _function_of(script: Script, made: str, call: ast.Call) -> ast.AST | None:
    """The `forward` of a class of this file, or a function or method of it."""
    last = made.rsplit(".", 1)[-1]
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ClassDef) and node.name == last:
            return next((item for item in node.body if isinstance(item, Function) and item.name == "forward"), None)
    named = [node for node in ast.walk(script.tree) if isinstance(node, Function) and node.name == last]
    return named[0] if len(named) == 1 else None


# -- detaching ------------------------------------------------------------------------------------


def detached(script: Script, names: list[str], after: ast.stmt) -> list[Edit]:
    """`name = name.detach()` behind a statement, for whatever the names hold; [] where that is not known of one."""
    lines = []
    for name in names:
        kind = held(script, after, name)
        if kind is Holds.OTHER:
            return []
        lines.append(f"{name} = {detaching(name, kind)}")
    return script.after(after, *lines) if lines else []


def detaching(name: str, kind: Holds) -> str:
    if kind is Holds.PAIR:
        return f"tuple(part.detach() for part in {name})"
    if kind is Holds.LIST:
        return f"[part.detach() for part in {name}]"
    if kind is Holds.DICT:
        return f"{{key: part.detach() for key, part in {name}.items()}}"
    return f"{name}.detach()"
