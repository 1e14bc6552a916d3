"""Ratios of probabilities that are 1 by construction: the old log-probability is taken of the policy that is being trained, anew in each step.

`exp(new - old)` of two numbers that are computed alike, the old one without history, is 1 wherever it is looked at. Where each sample is
used once that is by design; here several steps are taken with samples that were drawn before, and a limit stands around the ratio.
"""

from __future__ import annotations

import ast
from collections.abc import Container

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ConstantRatio
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import Place, expression, syntax_of
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

MOST_STEPS = 400  # of two computations that are compared
_BARE = {"detach", "data", "clone", "contiguous"}
_LIMITS = {"clamp", "clip", "clamp_min", "clamp_max"}


def constant_ratios(trace: Trace, loss: int | None) -> list[ConstantRatio]:
    if loss is None or trace.truncated:
        return []
    before = trace.ancestors({loss})
    return list({fact.site.span: fact for op in trace.ops if op.name == "exp" and any(seen.key in before for seen in op.outs) if (fact := _ratio(trace, op)) is not None}.values())


def _ratio(trace: Trace, op: Op) -> ConstantRatio | None:
    difference = trace.maker(op.ins[0]) if op.ins and op.ins[0].requires_grad else None
    if difference is None or difference.name not in ("sub", "__sub__", "subtract") or len(difference.ins) != 2:
        return None
    new, old = difference.ins
    limit = next((one for one in trace.ops[op.index :] if one.name in _LIMITS and one.ins and one.ins[0].key in {seen.key for seen in op.outs} and _around_one(one)), None)
    if limit is None or old.requires_grad or not new.requires_grad or not _alike(trace, new, old):
        return None
    taken = _taken(trace, old)
    site, made = trace.site(op), trace.site(taken) if taken is not None else None
    backward = next((one for one in trace.ops[op.index :] if one.name == "backward"), None)
    if site is None or made is None or taken is None or backward is None or site.library or not _drawn_before(trace, taken, op, backward):
        return None
    count = 1
    for n in op.ins[0].size:
        count *= n
    return ConstantRatio(site, made, trace.site(limit), count)


def _around_one(op: Op) -> bool:
    numbers = [value for value in (*op.plain[0], *op.plain[1].values()) if isinstance(value, float)]
    return any(0 < value < 1 for value in numbers) or any(1 < value < 2 for value in numbers)


def _taken(trace: Trace, old: Seen) -> Op | None:
    """Where the old one loses its history; or the last that was done to it, where it never had one."""
    first = trace.maker(old)
    op, seen = first, old
    for _ in range(8):
        if op is None or op.name not in ARRANGING | _BARE or not op.ins or op.ins[0].requires_grad:
            break
        seen = op.ins[0]
        op = trace.maker(seen) or op
        if trace.maker(seen) is None:
            break
    return op or first


def _alike(trace: Trace, one: Seen, other: Seen) -> bool:
    """The same calls, of the same tensors in the end; but for what only takes a history away."""
    todo, steps = [(one, other)], 0
    while todo:
        a, b = todo.pop()
        a, b = _bare(trace, a), _bare(trace, b)
        steps += 1
        if a.key == b.key:
            continue
        first, second = trace.maker(a), trace.maker(b)
        if first is None or second is None or steps > MOST_STEPS or first.name != second.name or len(first.ins) != len(second.ins) or not first.ins:
            return False
        if first.plain != second.plain or "dropout" in first.name:
            return False
        todo += zip(first.ins, second.ins, strict=True)
    return True


def _bare(trace: Trace, seen: Seen) -> Seen:
    while (op := trace.maker(seen)) is not None and op.name in _BARE and op.ins:
        seen = op.ins[0]
    return seen


def _drawn_before(trace: Trace, taken: Op, ratio: Op, backward: Op) -> bool:
    """Both are computed in each round of a loop that takes the steps, and the samples were drawn before that loop began."""
    draws = [op for op in trace.ops if not op.outs or not op.outs[0].requires_grad if op.name == "multinomial" or ((site := trace.site(op)) is not None and ".sample(" in site.source)]
    if not draws:
        return False
    for place in (ratio.place, backward.place):
        loop = _loop(place)
        if loop is None:
            continue
        if not _inside(taken.place, place, loop) and not (place is backward.place and _together(taken.place, ratio.place)):
            return False  # taken before the loop, which is right
        reached = _reached(loop, trace.site(ratio))
        steps = [op for op in trace.ops[backward.index :] if any(isinstance(part, str) and part.startswith("Optimizer.step") for part in op.plain[0])]
        # Of gradients that are only gathered there, each sample is used once.
        return any(_inside(op.place, place, loop, reached) for op in steps) and not any(_inside(op.place, place, loop, reached) for op in draws)
    return False


def _together(one: Place, other: Place) -> bool:
    """In one call of one function."""
    return one.user_code is other.user_code and one.frame_id == other.frame_id


def _inside(place: Place, around: Place, loop: ast.For | ast.While, reached: Container[str] = ()) -> bool:
    """Does this stand in the loop, or in a function that is called from there?"""
    if place.user_code is around.user_code:
        return loop.lineno < _line(place) <= (loop.end_lineno or 0)
    return place.user_code is not None and place.user_code.co_name in reached


def _reached(loop: ast.For | ast.While, near: Site | None) -> set[str]:
    """The names of functions that may be called from this loop, directly or by way of others of the program."""
    defined: dict[str, list[ast.AST]] = {}
    for _, tree in program_syntax([near]):
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                defined.setdefault(node.name, []).append(node)
    found: set[str] = set()
    todo: list[ast.AST] = [*loop.body, *(defined.get("forward", ()))]
    while todo:
        for node in ast.walk(todo.pop()):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name in defined and name not in found:
                found.add(name)
                todo += defined[name]
    return found | {"forward"}


def _loop(place: Place) -> ast.For | ast.While | None:
    """The innermost loop around it, in its function."""
    code = place.user_code
    tree = syntax_of(code.co_filename) if code is not None else None
    if tree is None:
        return None
    line = _line(place)
    scopes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)]
    scope: ast.AST = max(scopes, key=lambda node: node.lineno) if scopes else tree
    loops = [node for node in ast.walk(scope) if isinstance(node, (ast.For, ast.While)) and node.lineno < line <= (node.end_lineno or 0)]
    return max(loops, key=lambda node: node.lineno) if loops else None


def _line(place: Place) -> int:
    span, _ = expression(place.user_code, place.user_offset) if place.user_code is not None else (None, "")
    return span.line if span is not None else 0
