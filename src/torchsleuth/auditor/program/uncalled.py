"""Methods that the program names and does not call: `optimizer.zero_grad` without its parentheses does nothing."""

from __future__ import annotations

import ast
import dataclasses
import os
import typing

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.program.unreached import unreached_step
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of

_METHODS = {"no-backward": "backward", "never-stepped": "step", "eval-in-training": "train", "train-in-evaluation": "eval"}


def with_uncalled(fields: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """The facts about something that was not done, each with the place where it is only named."""
    found = dict(fields)
    if (fact := fields.get("no_update")) is not None and fact.reason in _METHODS:
        found["no_update"] = dataclasses.replace(fact, named=only_named(_METHODS[fact.reason], fact.site))
    if fact is not None and fact.reason == "never-stepped" and not fact.writers and found["no_update"].named is None and (step := unreached_step(fact.site)) is not None:
        found["no_update"] = dataclasses.replace(fact, unreached=step[0], condition=step[1])
    if fields.get("kept"):
        found["kept"] = tuple(dataclasses.replace(fact, named=only_named("zero_grad", fact.site, fact.backward)) for fact in fields["kept"])
    if fields.get("modes"):
        found["modes"] = tuple(dataclasses.replace(f, named=only_named(_METHODS[f.kind], f.site)) if f.kind in _METHODS else f for f in fields["modes"])
    return found


def only_named(method: str, *near: Site | None) -> Site | None:
    """The one statement in these files that is nothing but `something.method`."""
    found: list[Site] = []
    for name in dict.fromkeys(site.span.file for site in near if site is not None):
        filename = os.path.abspath(name)
        for node in ast.walk(syntax_of(filename) or ast.Module([], [])):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) and node.value.attr == method:
                found.append(site_of_node(filename, node.value))
    return found[0] if len(found) == 1 else None
