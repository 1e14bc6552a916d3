"""A graph gone through twice: detach what is carried over, recompute what was computed once, or keep the graph."""

from __future__ import annotations

import ast
import dataclasses

from torchsleuth.evidence import CarriedTensor, Evidence, FreedGraph
from torchsleuth.fixes.detaching import (
    TRUNCATED,
    detached_where_held,
    detached_where_kept,
    detached_where_made,
    detached_where_stored,
    detached_where_used,
    for_another_optimizer,
    is_object,
    is_running_sum,
    is_set_anew,
    is_set_in,
    is_visible,
    outside_name,
    path_is_simple,
)  # fmt: skip
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.ordering import recomputed
from torchsleuth.fixes.recomputing import (
    computed_each_time,
    computed_in_closure,
    computed_in_loop,
    computed_in_method,
    is_made_with_its_weights,
    made_outside,
    recomputed_outside,
)
from torchsleuth.fixes.script import Script, Scripts, called, names_in, users
from torchsleuth.fixes.states import carried_names, detached
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.wording import short


class FreedGraphFixer(Fixer):
    rule = "freed-graph"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        freed = evidence.freed
        script = scripts.get(users(freed.second)) if freed is not None else None
        if freed is None or script is None:
            return []
        backward = script.statement_at(users(freed.second).span)
        if backward is None:
            return []
        if freed.needless is not None:
            first = detached_where_used(scripts, [dataclasses.replace(freed.carried[0], used=freed.needless)])
            meaning = f"`{short(freed.first.source)}` then stops there: it gives no gradient to {_and(freed.behind)}." if freed.first is not None else ""
            return [dataclasses.replace(first, title=f"Detach `{freed.carried[0].tensor.name}` for the first loss.", meaning=meaning)] if first is not None else []
        if freed.carried:
            inside = computed_in_closure(scripts, script, backward, freed)
            if inside is not None:
                return [inside]
            if any(is_made_with_its_weights(scripts, item) for item in freed.carried):
                return [computed_in_method(scripts, freed.carried[0])] if len({item.tensor.name for item in freed.carried}) == 1 else []
            anew = computed_each_time(scripts, freed.carried[0])
            if anew is not None:
                return [anew]
            again = recomputed_outside(scripts, evidence, freed)
            if again is None:
                return _carried(scripts, script, backward, freed, freed.carried)
            return [again[0]] if again[1] else [*_kept(scripts, freed, ""), again[0]]
        if freed.freed_by_another:
            return _kept(scripts, freed, "The graph is then kept until nothing refers to it any more.")
        if freed.same_root:
            inside = computed_in_closure(scripts, script, backward, freed)
            return [inside] if inside is not None else [computed_in_loop(scripts, script, backward, None), *_kept(scripts, freed, "Gradients of both calls add up.")]
        again = recomputed_outside(scripts, evidence, freed)
        kept = _kept(scripts, freed, "") if again is not None and not again[1] else []
        return [*_shared(scripts, script, backward, freed), *kept, again[0] if again is not None else None]


def _and(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


# -- carried over ---------------------------------------------------------------------------------


def _carried(
    scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph, carried: tuple[CarriedTensor, ...]
) -> list[Fix | None]:
    loops = script.loops_around(backward)
    reached = detached_where_held(scripts, script, backward, carried)
    kept = detached_where_kept(scripts, carried) if not freed.alone else None
    if kept is not None and not (reached is not None and any(item.repeated for item in carried)):
        return [kept]
    fixes: list[Fix | None] = []
    if _in_one_round(scripts, script, backward, freed, carried[0], loops):
        return for_another_optimizer(scripts, script, backward, carried[0]) or _shared(scripts, script, backward, freed)
    stored = detached_where_stored(scripts, carried) if not freed.alone else None
    if stored is not None and reached is None:
        return [stored]
    outside = [made_outside(scripts, script, item, loops[0] if loops else None) for item in carried]
    if loops and any(statement is not None for statement in outside):
        statement, item = next((s, item) for s, item in zip(outside, carried, strict=True) if s is not None)
        inside = not statement.lineno <= users(item.made).span.line <= (statement.end_lineno or statement.lineno) or scripts.get(users(item.made)) is not script
        call = script.node_at(users(freed.second).span)
        # In a function called there: if the oldest part that was freed was made there too, the statement makes all of it.
        # `grad` writes nowhere: the rounds ask for rows of one derivative.
        if inside or isinstance(call, ast.Call) and called(call) == "grad":
            kept_graph = _kept(scripts, freed, "The graph of the first computation is kept for all rounds, and so are its values.")
            if kept_graph and freed.alone and isinstance(call, ast.Call) and called(call) == "grad":
                return _recorded_too(scripts, script, call, kept_graph)
            if kept_graph:
                return kept_graph  # the rounds belong to one step of the optimizer, or to none
        fixes.append(computed_in_loop(scripts, script, backward, statement, -1 if inside and item.since is not None else item.since))
        if fixes == [None] and not freed.alone:
            at_birth = detached_where_made(scripts, script, statement, item)
            if at_birth is not None:
                return [at_birth]
        fixes += _kept(scripts, freed, "The graph of the first computation is kept for all rounds, and so are its values.")
        if not any(fix is not None for fix in fixes) and not freed.alone:
            fixes.append(detached_where_used(scripts, carried) or detached_where_used(scripts, [next(item for item, s in zip(carried, outside) if s is not None)]))
        return fixes
    if freed.alone:
        call = script.node_at(users(freed.second).span)
        kept_graph = _kept(scripts, freed, "The graph of the first computation is kept for all rounds, and so are its values.")
        return _recorded_too(scripts, script, call, kept_graph) if isinstance(call, ast.Call) and called(call) == "grad" else kept_graph
    if reached is not None:
        return [reached]
    if loops:
        known = [outside_name(scripts, script, item, name) for item in carried for name in item.names if path_is_simple(name) and not _is_anothers(scripts, script, backward, item)]
        given = {name for loop in loops if isinstance(loop, ast.For) for name in names_in(loop.target)}  # set anew by the loop itself
        names = [name for name in known if is_visible(script, backward, name) and not is_object(script, backward, name) and name not in given]
        names = [name for name in names if not is_set_anew(loops[0], name) and not is_set_anew(loops[0], name.split(".")[0])]
        names = names or carried_names(script, loops[0], names_in(backward, ast.Load))
        if names:
            listed = list(dict.fromkeys(names))
            last = _set_last(script, backward, listed)
            if isinstance(last, ast.Assign) and isinstance(last.value, ast.Name) and len(listed) == 1:
                return [scripts.fix(f"Detach `{listed[0]}` where it is kept for the next round.", script.wrapped(last.value, ".detach()"), TRUNCATED, safe=False)]
            edits = detached(script, listed, last or backward)
            is_sum = is_running_sum(loops[0], listed[0]) and freed.root is not None and freed.root.name == listed[0]
            meaning = TRUNCATED
            if is_sum:
                meaning = f"Each backward then differentiates the newest part of `{listed[0]}` only; the earlier parts have had theirs."
            words = ", ".join(f"`{name}`" for name in listed)
            fixes.append(scripts.fix(f"Detach {words} after each step's backward.", edits, meaning, safe=False))
    elif script.class_of(backward) is not None:
        # A method that does one step: what the object keeps for the next one.
        kept = [name for item in carried for name in item.names if name.startswith("self.") and path_is_simple(name)]
        own = [name for name in dict.fromkeys(kept) if is_set_in(script, backward, name)]
        words = ", ".join(f"`{name}`" for name in own)
        fixes.append(scripts.fix(f"Detach {words} after the step's backward.", detached(script, own, backward) if own else [], TRUNCATED, safe=False))
    if not fixes and not loops:
        return _shared(scripts, script, backward, freed)
    if all(item.kept is None for item in carried):  # else it is used in a function that also goes on from step to step by itself
        fixes.append(detached_where_used(scripts, carried) or detached_where_used(scripts, carried[:1]))
    if not loops and freed.consumptions == 1 and freed.first is not None and freed.first.span != freed.second.span:
        fixes += _kept(scripts, freed, f"Both losses then train what computed `{carried[0].tensor.name}`.") if carried[0].tensor.name else []
    return fixes


def _set_last(script: Script, backward: ast.stmt, names: list[str]) -> ast.stmt | None:
    """What sets them for the next round once backward is done: before it they would be detached in vain."""
    block = script.block_of(backward)
    after = block[block.index(backward) + 1 :]
    return next((statement for statement in reversed(after) if names_in(statement, ast.Store) & set(names)), None)


def _is_anothers(scripts: Scripts, script: Script, backward: ast.stmt, item: CarriedTensor) -> bool:
    """A list that only another function has under this name."""
    place = users(item.used) if item.used is not None else None
    used = script.statement_at(place.span) if scripts.get(place) is script else None
    return item.within and item.tensor.name.isidentifier() and (used is None or script.scope_of(used) is not script.scope_of(backward))


def _in_one_round(
    scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph, item: CarriedTensor, loops: list
) -> bool:
    """Made, gone through by another backward call, and used again, all in one run of the same block."""
    places = [users(place) if place is not None else None for place in (item.made, freed.first, item.used)]
    if any(scripts.get(place) is not script for place in places) or freed.first.span == freed.second.span:
        return False
    found = [script.statement_at(place.span) for place in places]
    block = script.block_of(backward)
    if any(statement not in block for statement in found):
        return False
    order = [block.index(statement) for statement in (*found, backward)]
    return order == sorted(order) and order[0] < order[1] < order[2]


# -- one graph, two losses ------------------------------------------------------------------------


def _shared(scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph) -> list[Fix | None]:
    first = script.statement_at(users(freed.first).span) if freed.first is not None and scripts.get(users(freed.first)) is script else None
    if first is None:
        return []
    block = script.block_of(backward)
    if first in block and first is not backward:
        between = block[block.index(first) + 1 : block.index(backward)]
        step = next((s for s in between if isinstance(s, ast.Expr) and called(s.value) == "step"), None)
        if step is not None:
            made = script.statement_at(users(freed.failing).span) if freed.failing is not None else None
            again = recomputed(script, [made] if made is not None else [], step, backward)
            if again is not None:
                words = ", ".join(f"`{short(line, 40)}`" for line in again[1][:2])
                return [
                    scripts.fix(
                        f"Run {words} again after `{short(script.segment(step), 40)}`.",
                        again[0],
                        "The second loss is then computed with the updated weights.",
                        safe=False,
                    )
                ]
    if first is backward:
        return [computed_in_loop(scripts, script, backward, None), *_kept(scripts, freed, "")]
    return [*_kept(scripts, freed, ""), _summed(scripts, script, first, backward)]


def _recorded_too(scripts: Scripts, script: Script, call: ast.Call, kept: list[Fix | None]) -> list[Fix | None]:
    """Second derivatives that go into a loss: `create_graph=True` keeps the graph, and records one for what it returns."""
    told = {"create_graph", "retain_graph"} & {keyword.arg for keyword in call.keywords}
    trains = any(isinstance(node, ast.Call) and called(node) == "backward" for node in ast.walk(script.tree))
    line, column = script.end(call)
    if told or not trains or script.between((line, column - 1), (line, column)) != ")" or _trailing_comma(script, call):
        return kept
    meaning = "What it returns then has a history of its own: a loss that is computed from it can be differentiated."
    title = "Keep the graph, and record one for the result: `create_graph=True`."
    return [scripts.fix(title, [script.insert((line, column - 1), ", create_graph=True")], meaning, safe=False), *kept]


def _kept(scripts: Scripts, freed: FreedGraph, meaning: str) -> list[Fix | None]:
    """`retain_graph=True` on the backward that came first; `create_graph=True` where what it returns goes into the loss."""
    found = scripts.node_at(users(freed.first)) if freed.first is not None and freed.first.span != freed.second.span else None
    fixes = _retained(scripts, freed, meaning)
    return _recorded_too(scripts, *found, fixes) if fixes and found is not None and called(found[1]) == "grad" else fixes


def _retained(scripts: Scripts, freed: FreedGraph, meaning: str) -> list[Fix | None]:
    place = users(freed.first) if freed.first is not None else users(freed.second)
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    if script is None or _is_step_between(scripts, freed) or not isinstance(node, ast.Call) or called(node) not in ("backward", "grad"):
        return []
    loops = script.loops_around(node)
    # One call in a loop: the rounds in question are those of the innermost one, where nothing is carried over.
    loops = loops[:1] if not freed.carried and freed.first is not None and freed.first.span == freed.second.span else loops
    if any(isinstance(inner, ast.Call) and called(inner) == "step" for loop in loops for inner in ast.walk(loop)):
        return []  # the kept graph needs the weights as they were, and the step changes them
    flag = next((k for k in node.keywords if k.arg == "retain_graph"), None)
    if flag is not None:
        edits = [script.replace(flag.value, "True")]
    else:
        line, column = script.end(node)
        lead = ", " if node.args or node.keywords else ""
        if script.between((line, column - 1), (line, column)) != ")" or _trailing_comma(script, node):
            return []
        edits = [script.insert((line, column - 1), f"{lead}retain_graph=True")]
    return [scripts.fix("Keep the graph for the second backward: `retain_graph=True` in the first.", edits, meaning, safe=not meaning)]


def _is_step_between(scripts: Scripts, freed: FreedGraph) -> bool:
    """The weights change between the two backward calls: a kept graph would be refused for that."""
    first, second = users(freed.first) if freed.first is not None else None, users(freed.second)
    script = scripts.get(first)
    one = script.statement_at(first.span) if script is not None else None
    if script is None or one is None or first.span == second.span:
        return False
    scope = script.scope_of(one)
    other = script.statement_at(second.span) if scripts.get(second) is script else None
    until = other.lineno if other is not None and script.scope_of(other) is scope else 1 << 30
    return any(isinstance(node, ast.Call) and called(node) == "step" and one.lineno <= node.lineno < until and node.lineno >= one.lineno
               and script.statement_of(node) is not one for node in script.own_nodes(scope))  # fmt: skip


def _trailing_comma(script: Script, call: ast.Call) -> bool:
    last = [*call.args, *(k.value for k in call.keywords)]
    return bool(last) and "," in script.between(max(script.end(item) for item in last), script.end(call))


def _summed(scripts: Scripts, script: Script, first: ast.stmt, second: ast.stmt) -> Fix | None:
    """`(a + b).backward()`, where the two calls stand next to one another."""
    block = script.block_of(second)
    if first not in block or block.index(second) - block.index(first) != 1:
        return None
    calls = [s.value for s in (first, second) if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    if len(calls) != 2 or any(called(c) != "backward" or c.args or c.keywords or not isinstance(c.func, ast.Attribute) for c in calls):
        return None
    one, other = (script.segment(c.func.value) for c in calls)
    edits = [*script.removed(first), script.replace(calls[1].func.value, f"({one} + {other})")]
    return scripts.fix(f"Add the losses and call backward once: `({one} + {other}).backward()`.", edits)
