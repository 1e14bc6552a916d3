"""The same thing twice where two were meant: one tensor returned in two places, one layer called again instead of another that is never used."""

from __future__ import annotations

import ast
import collections
import dataclasses
import typing

import torch
from torch import nn

from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.observation import Alias
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Unused
from torchsleuth.auditor.tracing.owners import source_of
from torchsleuth.auditor.tracing.sites import site_of_node
from torchsleuth.auditor.tracing.trace import Trace

_RANDOM = {"dropout", "alpha_dropout", "feature_alpha_dropout"}


def with_the_other(unused: Unused, model: nn.Module, trace: Trace, inside: slice) -> Unused:
    """Of a layer that is never called: the second call of one of its size that was given the very same tensors before."""
    parameters = dict(model.named_parameters())
    weight = parameters.get(unused.weights[0]) if unused.how == "never-called" else None
    if weight is None:
        return unused
    known: dict[tuple[typing.Any, ...], int] = {}
    for op in trace.ops[inside]:
        if not any(seen.key in trace.parameters and seen.size == tuple(weight.shape) for seen in op.ins) or op.name in _RANDOM:
            continue
        given = (op.name, *(seen.key for seen in op.ins))
        site = trace.site(op)
        if known.setdefault(given, op.index) != op.index and site is not None:
            first = trace.site(trace.ops[known[given]])
            if first is not None and first.span != site.span:
                return dataclasses.replace(unused, again=site, first=first)
    return _beside_one_called_twice(unused, model, trace, inside)


def _beside_one_called_twice(unused: Unused, model: nn.Module, trace: Trace, inside: slice) -> Unused:
    """The one layer beside it, of its kind, that is called from exactly two expressions of one function: one of them may be meant for this one."""
    modules = dict(model.named_modules())
    mine, parent = modules.get(unused.module), unused.module.rpartition(".")[0]
    if mine is None or not unused.module:
        return unused
    found: list[tuple[str, list[Site]]] = []
    for name, module in modules.items():
        if module is mine or type(module) is not type(mine) or not name or name.rpartition(".")[0] != parent or _sizes(module) != _sizes(mine):
            continue
        own = {id(p) for p in module.parameters()}
        keys = {key for key, ref in trace.parameters.items() if id(ref()) in own}
        calls = (site for op in trace.ops[inside] if any(seen.key in keys for seen in op.ins) and (site := trace.site(op)) is not None)
        sites = list({site.span: site for site in calls}.values())
        if len(sites) == 2 and sites[0].function == sites[1].function and not any(site.library for site in sites):
            found.append((name, sites))
    return dataclasses.replace(unused, other=found[0][0], twice=tuple(found[0][1])) if len(found) == 1 else unused


def _sizes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    """Of a table, how wide its rows are: ids that fit into two tables can be looked up in either."""
    return [(name, p.shape[1:] if isinstance(module, nn.Embedding) else p.shape) for name, p in module.named_parameters()]


def returned_twice(model: nn.Module, output: typing.Any, call: Call | None, dropped: bool) -> list[Alias]:
    """One tensor at two places of a model's result, which its source returns by one name; `dropped`: a layer's result is not returned at all.

    A state that a recurrence returns as its result, too, has the size of one that it was given.
    """
    items = list(output.values()) if isinstance(output, dict) else list(output) if isinstance(output, (tuple, list)) else []
    tensors = [(place, item) for place, item in enumerate(items) if isinstance(item, torch.Tensor)]
    counts = collections.Counter(id(item) for _, item in tensors)
    same = [place for place, item in tensors if counts[id(item)] == 2]
    if len(same) != 2:
        return []
    shape = items[same[0]].shape
    if not dropped and (call is None or any(leaf.tensor.shape == shape for leaf in call.leaves)):
        return []
    site = _return_of(model)
    if site is None:
        return []
    names = [list(output)[place] for place in same] if isinstance(output, dict) else [f"[{place}]" for place in same]
    return [Alias(2, site, None, "", tuple(f"output{name}" if str(name).startswith("[") else f"output[{name!r}]" for name in names), tuple(shape))]


def _return_of(model: nn.Module) -> Site | None:
    """The one `return a, a` (or `{"x": a, "y": a}`) in the source of the model's class."""
    file, tree = source_of(type(model))
    found = []
    for node in ast.walk(tree) if tree is not None else ():
        value = node.value if isinstance(node, ast.Return) else None
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else value.values if isinstance(value, ast.Dict) else []
        said = collections.Counter(ast.unparse(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute)))
        if value is not None and any(count == 2 for count in said.values()):
            found.append(value)
    return site_of_node(file, found[0], f"{type(model).__qualname__}") if len(found) == 1 else None
