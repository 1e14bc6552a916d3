"""Which sample of the dataset was at hand when `__getitem__` or `collate_fn` failed, read from the DataLoader's frames."""

from __future__ import annotations

import ast
import inspect
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.kept_unseen import kept_unseen
from torchsleuth.capture.returns import returned_part
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of


def sample_words(failure: Failure) -> str:
    """In words, "" where no DataLoader is involved or its frames do not tell."""
    for entry in failure.entries:
        if entry.code.co_name == "fetch" and entry.origin is Origin.TORCH and "fetch" in entry.code.co_filename:
            scope = locals_of(entry.frame)
            indices = scope.get("possibly_batched_index")
            fetched = scope.get("data")
            below = failure.entries[entry.position + 1 :]
            return _words(indices, fetched, scope, below)
    return ""


def sample_made(failure: Failure, tensors: typing.Iterable[torch.Tensor]) -> Made | None:
    """The expression that the dataset's `__getitem__` returns for one of these tensors, where syntax leaves only one."""
    for entry in failure.entries:
        if entry.code.co_name == "fetch" and entry.origin is Origin.TORCH and "fetch" in entry.code.co_filename:
            scope = locals_of(entry.frame)
            fetched = scope.get("data")
            if not isinstance(fetched, list):
                return None
            keys = {key for tensor in tensors for sample in fetched for key in _keys_of(sample, tensor)}
            owner = type(innermost(getattr(scope.get("self"), "dataset", None)))
            function: typing.Any = getattr(owner, "__getitem__", None)
            if len(keys) != 1 or not _is_programs(function):
                return None
            return _made(owner, function, returned_part(function.__code__, keys.pop()))
    return None


def kind_of_samples(dataset: typing.Any) -> type:
    return type(innermost(dataset))


def part_made(owner: type, key: int | str | None) -> Made | None:
    """The expression that `__getitem__` of a dataset of the program's returns at this key, where syntax leaves only one."""
    function: typing.Any = getattr(owner, "__getitem__", None)
    return _made(owner, function, returned_part(function.__code__, key)) if _is_programs(function) else None


def length_made(failure: Failure, definitions: Definitions, entry: Entry, index: ast.AST) -> Made | None:
    """For an index that a DataLoader has counted, or that is so much more than it: what the dataset's `__len__` returns."""
    owner = locals_of(entry.frame).get("self")
    function: typing.Any = inspect.getattr_static(type(owner), "__len__", None)
    if sample_number(failure, entry, index) is None or not _is_programs(function) or function.__code__.co_varnames[:1] != ("self",):
        return None
    node = returned_part(function.__code__, None)
    place = source.place_of_node(function.__code__, node, Known.INFERRED) if node is not None else None
    given = definitions.made(entry, node) if isinstance(node, ast.Attribute) else None
    return Made("length", place, given=given) if place is not None else None


def sample_number(failure: Failure, entry: Entry, index: ast.AST) -> tuple[str, int] | None:
    """The number that the DataLoader asked this `__getitem__` for, where the index is it and terms that are added to it or taken away."""
    above = failure.entries[entry.position - 1] if entry.position else None
    if above is None or above.origin is not Origin.TORCH or not above.code.co_filename.endswith("fetch.py") or entry.code.co_name != "__getitem__":
        return None
    name = entry.code.co_varnames[1] if entry.code.co_argcount > 1 else ""
    number = locals_of(entry.frame).get(name)
    again = any(bound == name for bound, *_ in bindings(function_node(entry.code) or index))
    return (name, number) if type(number) is int and not again and _times(index, name) == 1 else None


def _times(node: ast.AST, name: str) -> int | None:
    """How often a sum counts a name; None where it may do more than add and take away."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _times(node.left, name), _times(node.right, name)
        return None if left is None or right is None else left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node, ast.Name):
        return int(node.id == name)
    return None if any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node)) else 0


_MOST_CALLS = 4


def _made(owner: type, function: types.FunctionType, node: ast.AST | None) -> Made | None:
    """Through calls of the program's own, `self.load(i)` and `load(path)`, to what the last of them returns."""
    for _ in range(_MOST_CALLS):
        inner = _called(owner, function, node)
        part = returned_part(inner.__code__, None) if inner is not None else None
        if inner is None or part is None:
            break
        function, node = inner, part
    kept = kept_unseen(function.__code__, node)
    if kept is not None:
        return kept
    place = source.place_of_node(function.__code__, node, Known.INFERRED) if node is not None else None
    return Made(operation_word(node), place) if node is not None and place is not None else None


def _called(owner: type, function: types.FunctionType, node: ast.AST | None) -> types.FunctionType | None:
    if not isinstance(node, ast.Call):
        return None
    of_self = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id in function.__code__.co_varnames[:1]
    found = inspect.getattr_static(owner, node.func.attr, None) if of_self else function.__globals__.get(getattr(node.func, "id", ""))
    found = getattr(found, "__func__", found)  # a static method
    return found if _is_programs(found) and not inspect.isgeneratorfunction(found) and not hasattr(found, "__wrapped__") else None


def _is_programs(function: typing.Any) -> bool:
    return isinstance(function, types.FunctionType) and origin_of(function.__code__) is Origin.USER


def _keys_of(sample: typing.Any, tensor: torch.Tensor) -> typing.Iterator[int | str | None]:
    if sample is tensor:
        yield None
    elif isinstance(sample, dict):
        yield from (key for key, value in sample.items() if value is tensor)
    elif isinstance(sample, (list, tuple)):
        yield from (position for position, value in enumerate(sample) if value is tensor)


def innermost(dataset: typing.Any) -> typing.Any:
    """Behind `Subset`, `random_split` and the like."""
    while type(dataset).__module__.startswith("torch.utils.data") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return dataset


def worker_samples(entries: list[Entry]) -> str:
    """For a batch that a worker was asked for: its samples, where the order of the dataset tells them."""
    for entry in entries:
        if entry.code.co_name == "_next_data" and entry.origin is Origin.TORCH:
            scope = locals_of(entry.frame)
            number, owner = scope.get("idx"), scope.get("self")
            batches = getattr(owner, "_index_sampler", None)
            if type(number) is not int or owner is None:
                return ""
            size, sampler = getattr(batches, "batch_size", None), getattr(batches, "sampler", None)
            if type(sampler) is torch.utils.data.SequentialSampler and type(size) is int:
                total = len(sampler.data_source)
                return f"It failed in batch {number}: samples {_listed(range(number * size, min(total, (number + 1) * size)))} of the dataset."
            return f"It failed in batch {number} (counted from 0)."
    return ""


def _words(indices: typing.Any, fetched: typing.Any, scope: dict, below: list) -> str:
    if isinstance(indices, (list, tuple)):
        if all(index is None for index in indices):  # an IterableDataset numbers nothing
            return ""
        if isinstance(fetched, (list, tuple)) and len(fetched) == len(indices):
            odd = _odd_ones(fetched)
            text = f"The batch was made of samples {_listed(indices)}"
            if odd:
                text += f"; sample {indices[odd[0]]} (position {odd[0]} in the batch) is the first that differs from the others"
            return text + "."
        at = _current(scope, below)
        if at is not None:
            return f"It failed on sample {at} of the dataset (batch of samples {_listed(indices)})."
        return f"It failed while fetching samples {_listed(indices)}."
    if type(indices) is int:
        return f"It failed on sample {indices} of the dataset."
    return ""


def _current(scope: dict, below: list) -> int | None:
    """The index being fetched: the comprehension's variable, or the argument of the dataset's `__getitem__`."""
    if type(scope.get("idx")) is int:
        return scope["idx"]
    for entry in below[:4]:
        inner = locals_of(entry.frame)
        if entry.code.co_name == "<listcomp>" and type(inner.get("idx")) is int:
            return inner["idx"]
        if entry.code.co_name == "__getitem__" and entry.code.co_argcount >= 2:
            value = inner.get(entry.code.co_varnames[1])
            if type(value) is int:
                return value
    return None


def _listed(indices: typing.Sequence) -> str:
    shown = ", ".join(str(index) for index in indices[:8])
    return f"[{shown}{', ...' if len(indices) > 8 else ''}]"


def _odd_ones(samples: typing.Sequence) -> list[int]:
    """Positions of the samples whose tensors differ in shape from those of most."""
    signatures = [_signature(sample) for sample in samples]
    counts: dict = {}
    for signature in signatures:
        counts[signature] = counts.get(signature, 0) + 1
    if len(counts) < 2:
        return []
    most = max(counts.values())
    usual = next(signature for signature in signatures if counts[signature] == most)
    return [position for position, signature in enumerate(signatures) if signature != usual] if most > 1 else []


def _signature(sample: typing.Any, depth: int = 3) -> typing.Any:
    if isinstance(sample, torch.Tensor):
        return tuple(sample.shape)
    if isinstance(sample, dict) and depth:
        return tuple((str(key), _signature(value, depth - 1)) for key, value in sample.items())
    if isinstance(sample, (list, tuple)) and depth:
        return tuple(_signature(value, depth - 1) for value in sample)
    return type(sample).__name__
