"""What a failing call was given: each argument with its name, its expression and its live value, as far as it can be had.

The value of an argument is read from the frame that received it (torch's Python functions keep their parameters), or
re-evaluated from the caller's variables; a temporary that nobody holds any more is known from the log.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import inspect
import re
import types
import typing

import torch

from torchsleuth.capture.evaluate import UNKNOWN, Evaluator, is_torch_function
from torchsleuth.capture.failure import Entry, is_module_call
from torchsleuth.frozen import frozen
from torchsleuth.probe.names import locals_of

_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.MatMult: "matmul", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_UNARY = {ast.USub: "neg", ast.UAdd: "positive", ast.Invert: "bitwise_not", ast.Not: "bool"}
# Where torch's own helper functions raise: the call that the message is about is the one outside them.
_HELPERS = frozenset(
    {"_check_with", "_check", "_check_value", "_check_type", "_check_index", "_check_not_implemented", "check_same_device",
     "check_same_dtype", "_verify_batch_size", "_check_input_dim", "_check_size", "check_input", "check_hidden_size",
     "check_forward_args", "_check_tensor_all", "broadcast_tensors"}
)  # fmt: skip


@frozen
class Given:
    """One argument of a call. `value` is UNKNOWN where it cannot be had."""

    name: str
    node: ast.AST | None
    value: typing.Any
    recomputed: bool = False
    key: str | None = None  # of `**batch`: the value is the one under this key


@frozen
class Call:
    """A call (or operator, or subscript) in one frame."""

    name: str
    entry: Entry
    given: tuple[Given, ...]
    module: torch.nn.Module | None = None  # what was called, where that is a module
    is_torchs: bool = False  # a function of torch's, or a method of a tensor

    def named(self, *names: str) -> Given | None:
        return next((given for name in names for given in self.given if given.name == name), None)


def call_at(entry: Entry, below: Entry | None, logged_name: str = "") -> Call | None:
    """What the running expression of this frame calls, with its arguments; `below` is the frame it called into."""
    node = entry.node
    if isinstance(node, (ast.If, ast.While, ast.Assert)):
        node = node.test
    if isinstance(node, (ast.For, ast.AsyncFor)):
        node = node.iter
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)) and node.value is not None:
        node = node.value
    return call_at_node(node, entry, below, logged_name)


def call_at_node(node: ast.AST | None, entry: Entry, below: Entry | None = None, logged_name: str = "") -> Call | None:
    """The same for any expression of a frame."""
    evaluator = entry.evaluator
    if isinstance(node, ast.BinOp):
        return Call(_OPERATORS[type(node.op)], entry, (_given("self", node.left, evaluator), _given("other", node.right, evaluator)))
    if isinstance(node, ast.AugAssign):
        return Call(
            _OPERATORS[type(node.op)] + "_", entry,
            (_given("self", _loaded(node.target), evaluator), _given("other", node.value, evaluator)),
        )  # fmt: skip
    if isinstance(node, ast.Compare):
        return Call(
            _COMPARISONS.get(type(node.ops[0]), "compare"), entry,
            (_given("self", node.left, evaluator), _given("other", node.comparators[0], evaluator)),
        )  # fmt: skip
    if isinstance(node, ast.UnaryOp):
        return Call(_UNARY[type(node.op)], entry, (_given("self", node.operand, evaluator),))
    if isinstance(node, ast.Subscript):
        given = [_given("self", node.value, evaluator)]
        storing = isinstance(node.ctx, ast.Store)
        if storing and isinstance(entry.statement, ast.Assign):
            given.append(_given("value", entry.statement.value, evaluator))
        return Call("__setitem__" if storing else "__getitem__", entry, tuple(given))
    if isinstance(node, ast.Call):
        return _call(node, entry, below, logged_name)
    if isinstance(node, ast.expr):
        return Call(logged_name or "evaluation", entry, (_given("self", node, evaluator),))
    return None


def _given(name: str, node: ast.AST, evaluator: Evaluator) -> Given:
    value = evaluator.value(node)
    return Given(name, node, value, evaluator.is_recomputed(value))


def _loaded(target: ast.expr) -> ast.expr:
    """The target of `x[i] += v` as an expression to read."""
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target


def _call(node: ast.Call, entry: Entry, below: Entry | None, logged_name: str) -> Call:
    evaluator = entry.evaluator
    function: typing.Any = UNKNOWN
    given: list[Given] = []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    receiver = evaluator.value(node.func.value) if isinstance(node.func, ast.Attribute) else UNKNOWN
    method = isinstance(receiver, torch.Tensor)
    if isinstance(node.func, ast.Attribute) and receiver is UNKNOWN and logged_name and not _is_module_path(node.func.value):
        method = logged_name.strip("_") == name.strip("_")  # the log says that this method of a temporary was called
    elif isinstance(node.func, ast.Attribute) and receiver is UNKNOWN and below is None and not _is_module_path(node.func.value):
        method = hasattr(torch.Tensor, name) and evaluator.value(node.func) is UNKNOWN  # of a temporary that is gone
    if method:
        given.append(_given("self", node.func.value, evaluator))  # type: ignore[union-attr]
    else:
        function = evaluator.value(node.func)
    positional: list[tuple[ast.AST | None, typing.Any, bool]] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            values = evaluator.value(argument.value)
            if isinstance(values, (list, tuple)):
                positional.extend((argument, value, False) for value in values)
            else:
                positional.append((argument, UNKNOWN, False))
        else:
            value = evaluator.value(argument)
            positional.append((argument, value, evaluator.is_recomputed(value)))
    named: list[Given] = []
    for keyword in node.keywords:
        if keyword.arg is not None:
            named.append(_given(keyword.arg, keyword.value, evaluator))
        else:
            values = evaluator.value(keyword.value)
            values = values.data if isinstance(values, collections.UserDict) else values  # what tokenizers give back
            if isinstance(values, dict):
                named.extend(Given(str(key), keyword.value, value, key=str(key)) for key, value in values.items())
    module = function if isinstance(function, torch.nn.Module) else None
    if below is not None and is_module_call(below):
        module = locals_of(below.frame).get("self", module)
        positional, named = _received_by_module(below, positional, named)
    names = _parameter_names(function, module, name if method else getattr(function, "__name__", "") or name, method, below)
    if names and names[-1].startswith("*") and len(positional) > len(names) - 1:  # view(2, -1): one argument of several numbers
        star = names[-1][1:]
        names = (*names[:-1], *(star for _ in range(len(positional) - len(names) + 1)))
    for position, (argument_node, value, recomputed) in enumerate(positional):
        own = _own_name(argument_node, entry)
        given.append(Given(own or (names[position] if position < len(names) else ""), argument_node, value, recomputed))
    given.extend(named)
    if below is not None and not is_module_call(below) and below.origin.value == "torch":
        given = _received_by_function(below, given)
    own = function.__name__ if is_torch_function(function) else name
    return Call(
        own, entry, tuple(given), module if isinstance(module, torch.nn.Module) else None, method or is_torch_function(function)
    )  # fmt: skip


def _own_name(node: ast.AST | None, entry: Entry) -> str:
    """In torch's own functions a parameter that is passed on keeps the name that the documentation has for it."""
    if entry.origin.value != "torch":
        return ""
    if isinstance(node, ast.Name) and node.id in entry.code.co_varnames[: entry.code.co_argcount + entry.code.co_kwonlyargcount]:
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def _is_module_path(node: ast.AST) -> bool:
    """`torch.nn.functional`, `F`, `nn`: dotted names that stand for a package as far as spelling tells."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "nn", "np", "functional")


def _received_by_module(
    below: Entry, positional: list, named: list[Given]
) -> tuple[list[tuple[ast.AST | None, typing.Any, bool]], list[Given]]:
    """`_wrapped_call_impl(self, *args, **kwargs)` holds what the module was given, temporaries included."""
    scope = locals_of(below.frame)
    values, keywords = scope.get("args", ()), scope.get("kwargs", {})
    if len(values) == len(positional):
        positional = [(node, value, False) for (node, _, _), value in zip(positional, values)]
    elif values:
        positional = [(None, value, False) for value in values]
    named = [dataclasses.replace(given, value=keywords.get(given.name, given.value), recomputed=False) for given in named]
    return positional, named


def _received_by_function(below: Entry, given: list[Given]) -> list[Given]:
    """The parameters of torch's Python function that was called, where the caller's expression was a temporary."""
    scope, code = locals_of(below.frame), below.code
    star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else ""
    taken = scope.get(star, ()) if star else ()
    together = [item for item in given if item.name == star]
    filled = []
    for item in given:
        value = item.value
        if item.name == star and len(taken) == len(together):  # each of them is one of those that `*args` holds
            value = taken[next(k for k, other in enumerate(together) if other is item)]
        elif item.name != star:
            value = scope.get(item.name, item.value)
        if item.value is UNKNOWN or item.recomputed:
            filled.append(dataclasses.replace(item, value=value, recomputed=item.recomputed and value is item.value))
        else:
            filled.append(item)
    return filled


# -- names of parameters ------------------------------------------------------------------------------


def _parameter_names(
    function: typing.Any, module: torch.nn.Module | None, name: str, method: bool, below: Entry | None
) -> tuple[str, ...]:
    if isinstance(module, torch.nn.Module):
        return _python_names(type(module).forward)[1:]
    if below is not None and below.origin.value == "torch" and not is_module_call(below):
        code = below.code
        if code.co_name == name:
            names = code.co_varnames[: code.co_argcount]
            if code.co_flags & inspect.CO_VARARGS:
                names = (*names, "*" + code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
            return names[1:] if method and names[:1] == ("self",) else names
    if isinstance(function, types.FunctionType):
        return _python_names(function)
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        return _python_names(function.__init__)[1:]
    names = schema_names(name)
    return names[1:] if method else names


@functools.lru_cache(maxsize=256)
def _python_names(function: types.FunctionType) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple("*" + p.name if p.kind is p.VAR_POSITIONAL else p.name for p in parameters if p.kind is not p.VAR_KEYWORD)


_LAST_LIST = frozenset(
    {"view", "reshape", "permute", "expand", "repeat", "zeros", "ones", "empty", "rand", "randn", "tile", "flip", "new_zeros",
     "new_ones", "new_empty", "unflatten"}
)  # fmt: skip
_PUBLIC = {"cross_entropy_loss": "cross_entropy"}


@functools.lru_cache(maxsize=1024)
def schema_names(name: str) -> tuple[str, ...]:
    """Parameter names of a C function, from the documentation's signature or the operator's schema."""
    name = name.removeprefix("__").removesuffix("__")
    documented = _documented(name)
    if documented:
        return documented
    for candidate in (name, name.rstrip("_"), name.removeprefix("linalg."), "linalg_" + name, "special_" + name, "fft_" + name):
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{candidate}")
        if schemas:
            best = max(schemas, key=lambda schema: sum(1 for a in schema.arguments if "Tensor" in str(a.type)))
            names = tuple(argument.name for argument in best.arguments)
            if candidate in _LAST_LIST and len(names) >= 2:
                return (*names[:1], "*" + names[1])
            return names
    return ()


@functools.lru_cache(maxsize=1024)
def _documented(name: str) -> tuple[str, ...]:
    """`gather(input, dim, index, *, sparse_grad=False, out=None)`: the first line of the documentation."""
    if name in _LAST_LIST:
        return ()
    function = getattr(torch, name, None)
    text = getattr(function, "__doc__", None) or ""
    # Of `mean(input, *, dtype)` and `mean(input, dim, keepdim, *, dtype)` the one that takes more by position.
    found = re.findall(rf"^\s*(?:\.\. function:: )?(?:torch\.)?{re.escape(name)}\((.*?)\)\s*->", text, re.MULTILINE)
    if not found:
        return ()
    signature = max(found, key=lambda item: item.split("*")[0].count(","))
    names = []
    for part in re.split(r",(?![^(\[]*[)\]])", signature):
        word = re.match(r"\s*(?:Tensor\s+|int\s+)?(\*{0,2}\w+)", part)
        if word is None or word[1] in ("*", "out"):
            continue
        names.append(word[1])
    return tuple("self" if position == 0 and item == "input" else item for position, item in enumerate(names))


# -- torch's own frames ------------------------------------------------------------------------------


def checked_values(entry: Entry) -> tuple[Given, ...]:
    """For torch's Python code that raised after a check: the parameters of its function."""
    scope = locals_of(entry.frame)
    code = entry.code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(Given(name, None, scope[name]) for name in names if name in scope and name != "self")


def is_helper(entry: Entry) -> bool:
    return entry.code.co_name in _HELPERS


def holds_tensors(value: typing.Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (list, tuple)) and any(holds_tensors(item) for item in value)


__all__: typing.Final = (
    "Call", "Given", "call_at", "checked_values", "holds_tensors", "is_helper", "is_torch_function", "schema_names",
)  # fmt: skip
