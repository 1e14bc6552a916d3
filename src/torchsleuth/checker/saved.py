"""Trying other things for `forward` to save: backward may be right, and what it is given wrong."""

from __future__ import annotations

import ast
import dataclasses
import typing

import torch

from torchsleuth.checker import edits
from torchsleuth.checker.bench import Bench
from torchsleuth.checker.cases import Case, right_in
from torchsleuth.checker.change import applied, mend_of, replacement
from torchsleuth.checker.compiling import from_text
from torchsleuth.checker.source import Method, method_of, own_nodes
from torchsleuth.checker.trial import Mend
from torchsleuth.model import Role

LIMIT = 500


def saved_otherwise(bench: Bench, cases: list[Case], wanted: set[int], right: set[int], only: str = "") -> Mend | None:
    """backward may be right and what forward saved for it wrong."""
    subject = bench.subject
    function = subject.function.setup_context if subject.separate else subject.forward_code
    method = method_of(function, f"{subject.name}.{'setup_context' if subject.separate else 'forward'}")
    if method is None:
        return None
    names = _assigned_names(method, subject.separate)
    for count, change in enumerate(edits.saved_changes(method, names)):
        if count > LIMIT:
            break
        if only and replacement(change, method) != only:
            continue
        text = applied(method, change)
        changed = from_text(function, method, text)
        if changed is None:
            continue
        if all(_right_with(bench, case, changed, wanted | right) for case in cases):
            result = mend_of(method, change, text, len(cases))
            return dataclasses.replace(result, culprit=dataclasses.replace(result.culprit, role=Role.SAVE))
    return None


def _right_with(bench: Bench, case: Case, changed: typing.Callable, wanted: set[int]) -> bool:
    from torchsleuth.checker.randomness import restore_random
    from torchsleuth.checker.subject import Context

    subject = bench.subject
    context = Context(case.arguments.needs)
    values = tuple(v.clone() if isinstance(v, torch.Tensor) and bench.writes else v for v in case.arguments.values)
    if bench.random:
        restore_random(bench.state)
    try:
        with torch.no_grad():
            if subject.separate:
                changed(context, values, case.run.returned)
            else:
                changed(context, *values)
    except Exception:
        return False
    again = case._replace(run=case.run._replace(context=context))
    return right_in(bench, again, subject.backward, wanted)


def _assigned_names(method: Method, separate: bool) -> list[str]:
    """Names that can be saved: parameters and what is assigned."""
    out = [a.arg for a in method.tree.args.args[(0 if separate else 1) :]]
    for node in own_nodes(method.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            out.append(node.id)
    return list(dict.fromkeys(out))
