"""How many things a layer, a model or a DataLoader hands over, where the program unpacks another number of them.

`out, h, c = lstm(x)` fails in Python, and nothing is left of what was returned. torch's layers always return the same; what a model
of the program's own returns, or a dataset, is told by the one `return` in its source.
"""

from __future__ import annotations

import ast
import re
import types
import typing

import torch

from torchsleuth.bindings import function_node, returns_of
from torchsleuth.capture.evaluate import Evaluator
from torchsleuth.origin import Origin, origin_of

_COUNTED = re.compile(r"(not enough|too many) values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?\)")


class Results(typing.NamedTuple):
    words: str  # "2 values, returned by an LSTM: output, (h_n, c_n)"
    code: types.CodeType | None = None  # of the function that returns them, and the expression
    node: ast.AST | None = None


def results_unpacked(message: str, statement: ast.stmt | None, evaluator: Evaluator) -> Results | None:
    counted = _COUNTED.search(message)
    if counted is None:
        return None
    asked, got = int(counted[2]), int(counted[3]) if counted[3] else None

    def fits(count: int) -> bool:
        return count == got if got is not None else count > asked

    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and _width(statement.targets[0]) == asked:
        found = _of_module(evaluator.value(statement.value.func))
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        target, looped = _without_count(statement.target, statement.iter)
        found = _of_loop(looped, evaluator) if _width(target) == asked else None
    else:
        found = None
    return found[1] if found is not None and fits(found[0]) else None


def _without_count(target: ast.expr, looped: ast.expr) -> tuple[ast.expr, ast.expr]:
    """`for k, (x, y) in enumerate(tqdm(loader))`: `(x, y)` and `loader`."""
    while isinstance(looped, ast.Call) and looped.args and getattr(looped.func, "id", "") in ("enumerate", "tqdm"):
        if getattr(looped.func, "id", "") == "enumerate":
            target = target.elts[1] if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2 else target
        looped = looped.args[0]
    return target, looped


def _of_loop(looped: ast.expr, evaluator: Evaluator) -> tuple[int, Results] | None:
    if not isinstance(looped, ast.Call):
        return _of_loader(evaluator.value(looped))
    given = looped.args[0] if looped.args else None  # `DataLoader(Pets(rows), batch_size=8)`, right in the loop
    if evaluator.value(looped.func) is not torch.utils.data.DataLoader or given is None or any(keyword.arg == "collate_fn" for keyword in looped.keywords):
        return None
    kind = evaluator.value(given.func) if isinstance(given, ast.Call) else type(evaluator.value(given))
    return _of_dataset(kind) if isinstance(kind, type) else None


def _width(target: ast.AST) -> int:
    return len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts) else 0


def _of_module(module: typing.Any) -> tuple[int, Results] | None:
    if not isinstance(module, torch.nn.Module):
        return None
    kind = type(module).__name__
    if isinstance(module, torch.nn.LSTM):
        return 2, Results("2 values, returned by an LSTM: output, (h_n, c_n)")
    if isinstance(module, (torch.nn.GRU, torch.nn.RNN)):
        return 2, Results(f"2 values, returned by {'a GRU' if isinstance(module, torch.nn.GRU) else 'an RNN'}: output, h_n")
    if isinstance(module, torch.nn.MultiheadAttention):
        return 2, Results("2 values, returned by a MultiheadAttention: attn_output, attn_output_weights")
    found = _returned(type(module).forward)
    return (found[0], Results(f"{found[0]} values, returned by `{kind}.forward`", found[1], found[2])) if found is not None else None


def _of_loader(loader: typing.Any) -> tuple[int, Results] | None:
    if type(loader) is not torch.utils.data.DataLoader or loader.collate_fn is not torch.utils.data.default_collate:
        return None
    dataset = loader.dataset
    while isinstance(dataset, torch.utils.data.Subset):
        dataset = dataset.dataset
    if type(dataset) is torch.utils.data.TensorDataset:
        count = len(dataset.tensors)
        return count, Results(f"{count} parts of each batch: the TensorDataset holds {count} tensor{'s' if count != 1 else ''}")
    return _of_dataset(type(dataset))


def _of_dataset(kind: type) -> tuple[int, Results] | None:
    found = _returned(getattr(kind, "__getitem__", None))
    return (found[0], Results(f"{found[0]} parts of each batch, as `{kind.__name__}.__getitem__` returns them", found[1], found[2])) if found is not None else None


def _returned(function: typing.Any) -> tuple[int, types.CodeType, ast.AST] | None:
    """The length of the tuple or dict that a function returns, by the one `return` it has."""
    code = getattr(function, "__code__", None)
    if not isinstance(function, types.FunctionType) or code is None or origin_of(code) is not Origin.USER or hasattr(function, "__wrapped__"):
        return None
    scope = function_node(code)
    returns = list(returns_of(scope)) if scope is not None else []
    value = returns[0].value if len(returns) == 1 else None
    if not isinstance(value, ast.Tuple) or any(isinstance(element, ast.Starred) for element in value.elts):
        return None
    return len(value.elts), code, value
