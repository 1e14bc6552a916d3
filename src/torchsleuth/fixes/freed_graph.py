"""A graph gone through twice: detach what is carried over, recompute what was computed once, or keep the graph."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence

from torchsleuth.evidence import CarriedTensor, Evidence, FreedGraph, Place
from torchsleuth.fixes.copies import occurrences
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.ordering import recomputed, split_over_functions
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of
from torchsleuth.fixes.states import Holds, carried_names, detached, held
from torchsleuth.model import Diagnosis, Edit, Fix
from torchsleuth.wording import short

_EACH_TIME = "Gradients then stop there each time it is run."
_TRUNCATED = "Gradients then stop at the step boundary (truncated backpropagation through time)."


class FreedGraphFixer(Fixer):
    rule = "freed-graph"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        freed = evidence.freed
        script = scripts.get(_users(freed.second)) if freed is not None else None
        if freed is None or script is None:
            return []
        backward = script.statement_at(_users(freed.second).span)
        if backward is None:
            return []
        if freed.needless is not None:
            first = _detached_where_used(scripts, [dataclasses.replace(freed.carried[0], used=freed.needless)])
            meaning = f"`{short(freed.first.source)}` then stops there: it gives no gradient to {_and(freed.behind)}." if freed.first is not None else ""
            return [dataclasses.replace(first, title=f"Detach `{freed.carried[0].tensor.name}` for the first loss.", meaning=meaning)] if first is not None else []
        if freed.carried:
            inside = _computed_in_closure(scripts, script, backward, freed)
            if inside is not None:
                return [inside]
            again = _recomputed_outside(scripts, evidence, freed)
            return [again] if again is not None else _carried(scripts, script, backward, freed, freed.carried)
        if freed.freed_by_another:
            return _kept(scripts, freed, "The graph is then kept until nothing refers to it any more.")
        if freed.same_root:
            return [computed_in_loop(scripts, script, backward, None), *_kept(scripts, freed, "Gradients of both calls add up.")]
        return [*_shared(scripts, script, backward, freed), _recomputed_outside(scripts, evidence, freed)]


def _and(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _users(place: Place) -> Place:
    return place.via if place.in_library and place.via is not None else place


# -- carried over ---------------------------------------------------------------------------------


def _carried(
    scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph, carried: tuple[CarriedTensor, ...]
) -> list[Fix | None]:
    loops = script.loops_around(backward)
    kept = _detached_where_kept(scripts, carried)
    if kept is not None:
        return [kept]
    fixes: list[Fix | None] = []
    if _in_one_round(scripts, script, backward, freed, carried[0], loops):
        return _for_another_optimizer(scripts, script, backward, carried[0]) or _shared(scripts, script, backward, freed)
    outside = [_made_outside(scripts, script, item, loops[0] if loops else None) for item in carried]
    if loops and any(statement is not None for statement in outside):
        statement, item = next((s, item) for s, item in zip(outside, carried, strict=True) if s is not None)
        inside = not statement.lineno <= _users(item.made).span.line <= (statement.end_lineno or statement.lineno) or scripts.get(_users(item.made)) is not script
        if inside:  # in a function called there: if the oldest part that was freed was made there too, the statement makes all of it
            kept_graph = _kept(scripts, freed, "The graph of the first computation is kept for all rounds, and so are its values.")
            if kept_graph:
                return kept_graph  # the rounds belong to one step of the optimizer
        fixes.append(computed_in_loop(scripts, script, backward, statement, -1 if inside and item.since is not None else item.since))
        if fixes == [None]:
            at_birth = _detached_where_made(scripts, script, statement, item)
            if at_birth is not None:
                return [at_birth]
        fixes += _kept(scripts, freed, "The graph of the first computation is kept for all rounds, and so are its values.")
        if not any(fix is not None for fix in fixes):
            fixes.append(_detached_where_used(scripts, carried) or _detached_where_used(scripts, [next(item for item, s in zip(carried, outside) if s is not None)]))
        return fixes
    if loops:
        known = [_outside_name(scripts, script, item, name) for item in carried for name in item.names if path_is_simple(name)]
        given = {name for loop in loops if isinstance(loop, ast.For) for name in names_in(loop.target)}  # set anew by the loop itself
        names = [name for name in known if _is_visible(script, backward, name) and not _is_object(script, backward, name) and name not in given]
        names = names or carried_names(script, loops[0], names_in(backward, ast.Load))
        if names:
            listed = list(dict.fromkeys(names))
            edits = detached(script, listed, backward)
            is_sum = _is_running_sum(loops[0], listed[0]) and freed.root is not None and freed.root.name == listed[0]
            meaning = _TRUNCATED
            if is_sum:
                meaning = f"Each backward then differentiates the newest part of `{listed[0]}` only; the earlier parts have had theirs."
            words = ", ".join(f"`{name}`" for name in listed)
            fixes.append(scripts.fix(f"Detach {words} after each step's backward.", edits, meaning, safe=False))
    elif script.class_of(backward) is not None:
        # A method that does one step: what the object keeps for the next one.
        kept = [name for item in carried for name in item.names if name.startswith("self.") and path_is_simple(name)]
        own = [name for name in dict.fromkeys(kept) if _is_set_in(script, backward, name)]
        words = ", ".join(f"`{name}`" for name in own)
        fixes.append(scripts.fix(f"Detach {words} after the step's backward.", detached(script, own, backward) if own else [], _TRUNCATED, safe=False))
    if not fixes and not loops:
        return _shared(scripts, script, backward, freed)
    if all(item.kept is None for item in carried):  # else it is used in a function that also goes on from step to step by itself
        fixes.append(_detached_where_used(scripts, carried) or _detached_where_used(scripts, carried[:1]))
    return fixes


def _is_set_in(script: Script, backward: ast.stmt, name: str) -> bool:
    """An attribute that the class of this method sets."""
    owner = script.class_of(backward)
    return any(path_of(node) == name and isinstance(node.ctx, ast.Store) for node in ast.walk(owner) if isinstance(node, ast.Attribute))


def _outside_name(scripts: Scripts, script: Script, item: CarriedTensor, name: str) -> str:
    """`self.h` in a module's forward is `model.h` where the module was made: `model = Stateful()`."""
    place = _users(item.used) if item.used is not None else None
    home = scripts.get(place)
    node = home.node_at(place.span) if home is not None else None
    owner = home.class_of(node) if home is not None and node is not None else None
    if not name.startswith("self.") or owner is None:
        return name
    made = [
        path_of(other.targets[0])
        for other in ast.walk(script.tree)
        if isinstance(other, ast.Assign) and len(other.targets) == 1 and called(other.value) == owner.name
    ]
    return f"{made[0]}.{name.removeprefix('self.')}" if len(made) == 1 and made[0].isidentifier() else name


def path_is_simple(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _is_visible(script: Script, backward: ast.stmt, name: str) -> bool:
    """The name is bound in the function (or module) of the backward call."""
    scope = script.scope_of(backward)
    bound = {path_of(node) for node in script.own_nodes(scope) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}
    # An attribute of a module that is bound there, or at the file's top level, can be set from there too.
    owner = name.split(".")[0]
    return name in bound or ("." in name and owner != "self" and (owner in bound or owner in names_in(script.tree.body, ast.Store)))


def _is_object(script: Script, backward: ast.stmt, name: str) -> bool:
    """`m = Memory()`: the name means something else here than where the tensor was carried."""
    scope = script.scope_of(backward)
    return any(
        isinstance(node, ast.Assign) and called(node.value)[:1].isupper() and any(path_of(target) == name for target in node.targets)
        for node in script.own_nodes(scope)
    )


def _is_running_sum(loop: ast.AST, name: str) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and path_of(node.target) == name and isinstance(node.op, ast.Add):
            return True
        if isinstance(node, ast.Assign) and any(path_of(t) == name for t in node.targets) and isinstance(node.value, ast.BinOp):
            if isinstance(node.value.op, ast.Add) and name in {path_of(node.value.left), path_of(node.value.right)}:
                return True
    return False


def _detached_where_used(scripts: Scripts, carried: Sequence[CarriedTensor]) -> Fix | None:
    """All that is carried over, where that can be done for each: one that is left takes the old graph along."""
    edits = [_detaching_use(scripts, item) for item in carried]
    words = ", ".join(dict.fromkeys(f"`{item.tensor.name}`" for item in carried))
    if not carried or any(edit is None for edit in edits):
        return None
    verb = "enters" if len(edits) == 1 else "enter"
    return scripts.fix(f"Detach {words} where {'it' if len(edits) == 1 else 'they'} {verb} the new step.", [one for edit in edits for one in edit], _EACH_TIME, safe=False)


def _detached_where_kept(scripts: Scripts, carried: Sequence[CarriedTensor]) -> Fix | None:
    """`self.state = h, c` → `self.state = h.detach(), c.detach()`, where all that is carried over is kept so."""
    edits: list[Edit] = []
    done: set[object] = set()
    for item in carried:
        script = scripts.get(item.kept)
        statement = script.statement_at(item.kept.span) if script is not None else None
        if script is None or not isinstance(statement, ast.Assign):
            return None
        if names_in(statement, ast.Store) & set(item.names):
            return None  # it reads and sets the name at once: in the first round that may hold None
        if statement in done:
            continue
        done.add(statement)
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Name) and node.id in item.names:
                kind = held(script, node, node.id)
                if kind is Holds.PAIR:
                    edits.append(script.replace(node, f"tuple(part.detach() for part in {node.id})"))
                elif kind in (Holds.TENSOR, Holds.UNKNOWN):
                    edits += script.wrapped(node, ".detach()")
                else:
                    return None
    words = ", ".join(dict.fromkeys(f"`{name}`" for item in carried for name in item.names))
    return scripts.fix(f"Detach {words} where the next round's state is kept.", edits, _EACH_TIME, safe=False) if edits else None


def _detaching_use(scripts: Scripts, item: CarriedTensor) -> list[Edit] | None:
    place = _users(item.used) if item.used is not None else None
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    if script is None or not isinstance(node, ast.expr) or not item.tensor.name:
        return None
    if held(script, node, item.tensor.name) not in (Holds.TENSOR, Holds.UNKNOWN) or _starts_as_number(script, node, item.tensor.name):
        return None
    found = occurrences(script, node, item.tensor.name)
    if len(found) != 1:
        return None
    if _may_be_none(script, node, item.tensor.name):
        text = f"{script.segment(found[0])} if {script.segment(found[0])} is None else {script.segment(found[0])}.detach()"
        return [script.replace(found[0], text if isinstance(script.parent(found[0]), (ast.Call, ast.keyword)) else f"({text})")]
    return script.wrapped(found[0], ".detach()")


def _may_be_none(script: Script, node: ast.AST, name: str) -> bool:
    """`def forward(self, x, h=None)`, or `h = None` before the first round."""
    scope = script.scope_of(node)
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = scope.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
        if any(argument.arg == name and isinstance(default, ast.Constant) and default.value is None for argument, default in defaults):
            return True
    return any(
        isinstance(other, ast.Assign) and isinstance(other.value, ast.Constant) and other.value.value is None and any(path_of(t) == name for t in other.targets)
        for other in script.own_nodes(scope)
    )


def _starts_as_number(script: Script, node: ast.AST, name: str) -> bool:
    """`total = 0` before the first round: a number cannot be detached."""
    return any(
        isinstance(other, ast.Assign) and isinstance(other.value, ast.Constant) and other.value.value is not None and any(path_of(t) == name for t in other.targets)
        for other in ast.walk(script.tree)
    )


# -- used again in the same round -----------------------------------------------------------------


def _in_one_round(
    scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph, item: CarriedTensor, loops: list
) -> bool:
    """Made, gone through by another backward call, and used again, all in one run of the same block."""
    places = [_users(place) if place is not None else None for place in (item.made, freed.first, item.used)]
    if any(scripts.get(place) is not script for place in places) or freed.first.span == freed.second.span:
        return False
    found = [script.statement_at(place.span) for place in places]
    block = script.block_of(backward)
    if any(statement not in block for statement in found):
        return False
    order = [block.index(statement) for statement in (*found, backward)]
    return order == sorted(order) and order[0] < order[1] < order[2]


def _for_another_optimizer(scripts: Scripts, script: Script, backward: ast.stmt, item: CarriedTensor) -> list[Fix | None]:
    """The second backward is for an optimizer that does not train what made the tensor (the generator, in the
    discriminator's step): its gradient is not wanted there."""
    place = _users(item.made)
    maker = script.node_at(place.span)
    owner = path_of(maker.func) if isinstance(maker, ast.Call) else ""
    trained = _trained_after(script, backward)
    if not owner or not trained or any(owner == name or owner.startswith(f"{name}.") or name.startswith(f"{owner}.") for name in trained):
        return []
    fix = _detached_where_used(scripts, [item])
    if fix is None:
        return []
    return [dataclasses.replace(fix, meaning=f"This backward then gives `{owner}` no gradient; the optimizer that follows does not train it.")]


def _trained_after(script: Script, backward: ast.stmt) -> set[str]:
    """The modules whose parameters the optimizer that steps next was given, as the source calls them."""
    block = script.block_of(backward)
    step = next((s for s in block[block.index(backward) :] for n in ast.walk(s) if isinstance(n, ast.Call) and called(n) == "step"), None)
    call = next((n for n in ast.walk(step) if isinstance(n, ast.Call) and called(n) == "step"), None) if step is not None else None
    name = path_of(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else ""
    made = [n.value for n in ast.walk(script.tree) if isinstance(n, ast.Assign) and any(path_of(t) == name for t in n.targets)] if name else []
    if len(made) != 1 or not isinstance(made[0], ast.Call):
        return set()
    return {
        path_of(n.func.value)
        for n in ast.walk(made[0])
        if isinstance(n, ast.Call) and called(n) in ("parameters", "named_parameters") and isinstance(n.func, ast.Attribute)
    } - {""}


def _detached_where_made(scripts: Scripts, script: Script, statement: ast.stmt, item: CarriedTensor) -> Fix | None:
    """What was computed before the loop from values that are not computed there again is data to the loop."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or item.since is not None or not item.tensor.name:
        return None
    meaning = f"`{item.tensor.name}` is then data to the loop: no gradient goes back through it."
    if path_of(statement.targets[0]) == item.tensor.name:
        edits = script.wrapped(statement.value, ".detach()")
    else:
        edits = detached(script, [item.tensor.name], statement)  # one of several that the statement unpacks
    return scripts.fix(f"Detach `{item.tensor.name}` where it is made.", edits, meaning, safe=False)


# -- computed once --------------------------------------------------------------------------------


def _made_outside(scripts: Scripts, script: Script, item: CarriedTensor, loop: ast.stmt | None) -> ast.stmt | None:
    """The statement before the loop, in the loop's own block, that made what each round uses."""
    if item.made is None or loop is None:
        return None
    block = script.block_of(loop)
    before = block[: block.index(loop)]
    statement = script.statement_at(_users(item.made).span) if scripts.get(_users(item.made)) is script else None
    if statement in before:
        return statement
    # Made in a function called there: the one statement that binds it in this function.
    name = item.tensor.name
    scope = script.scope_of(loop)
    binds = [node for node in script.own_nodes(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name]
    found = script.statement_of(binds[0]) if len(binds) == 1 else None
    return found if isinstance(found, ast.Assign) and found in before else None


def computed_in_loop(scripts: Scripts, script: Script, backward: ast.stmt, made: ast.stmt | None, since: int | None = -1) -> Fix | None:
    """What was computed once before the loop, computed in every round. `since`: the line, or None for none in this
    function, at which the oldest part that was freed was computed; all of that must be computed again."""
    loops = script.loops_around(backward)
    if not loops:
        return None
    loop = loops[-1] if made is None else next((item for item in loops if made in script.block_of(item)), loops[0])
    block = script.block_of(loop)
    before = block[: block.index(loop)]
    if made is None:
        wanted = names_in(backward, ast.Load)
        last = next((s for s in reversed(before) if isinstance(s, ast.Assign) and names_in(s, ast.Store) & wanted), None)
        if last is None:
            return None
        made = last
    chosen = _computation(before, made)
    if since is None or since > 0 and not any(s.lineno <= since <= (s.end_lineno or s.lineno) for s in chosen):
        return None
    if any(not isinstance(s, ast.Assign) or not script.is_alone_on_line(s) or "\n" in script.segment(s) for s in chosen):
        return None
    drawing = [s for s in chosen if any(isinstance(node, ast.Call) and called(node) in _DRAWN for node in ast.walk(s))]
    if any(names_in(statement, ast.Store) & names_in(loop, ast.Load) for statement in drawing):
        return None  # what was drawn once (the actions of an episode, say) is data to the loop: drawn anew it is another problem
    first = loop.body[0]
    if first.lineno == loop.lineno:
        return None
    edits = script.before(first, *(script.segment(statement) for statement in chosen))
    for statement in chosen:
        edits += script.removed(statement)
    words = ", ".join(f"`{short(script.segment(statement), 40)}`" for statement in chosen[:2])
    meaning = f"It is then computed anew, with the weights {'and new random numbers ' * bool(drawing)}of that round."
    return scripts.fix(f"Compute {words} in every round of the loop.", edits, meaning, safe=False)


def _computed_in_closure(scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph) -> Fix | None:
    """`pred = net(x)` before `def closure():`, which an optimizer calls many times: computed in the closure."""
    item, function = freed.carried[0], script.scope_of(backward)
    statement = script.statement_at(_users(item.made).span) if item.made is not None and scripts.get(_users(item.made)) is script else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(statement, ast.Assign) or freed.first is None:
        return None
    block = script.block_of(function)
    if freed.first.span != freed.second.span or statement not in block or block.index(statement) >= block.index(function):
        return None
    before = block[: block.index(function)]
    chosen = _computation(before, statement)
    covered = item.since is None or any(s.lineno <= item.since <= (s.end_lineno or s.lineno) for s in chosen)
    first = function.body[0]
    if not covered or first.lineno == function.lineno or any(not isinstance(s, ast.Assign) or "\n" in script.segment(s) for s in chosen):
        return None
    words = ", ".join(f"`{short(script.segment(s), 40)}`" for s in chosen[:2])
    edits = script.before(first, *(script.segment(s) for s in chosen))
    return scripts.fix(f"Compute {words} in `{function.name}`, each time it is called.", edits, "It is then computed with the weights of that moment.", safe=False)


def _computation(before: list[ast.stmt], made: ast.stmt) -> list[ast.stmt]:
    """`made` and the statements before it that compute on tensors and lead to it; data and modules stay outside."""
    chosen = [made]
    wanted = names_in(made, ast.Load)
    for statement in reversed(before[: before.index(made)]):
        if isinstance(statement, ast.Assign) and names_in(statement, ast.Store) & wanted and _computes(statement.value):
            chosen.append(statement)
            wanted |= names_in(statement, ast.Load)
    return chosen[::-1]


_DRAWN = {"randn", "rand", "randint", "randn_like", "rand_like", "randperm", "normal", "sample", "rsample", "multinomial", "bernoulli"}
_MAKERS = {"randn", "rand", "zeros", "ones", "tensor", "arange", "full", "empty", "randint", "eye", "linspace", "randperm", "clone", "detach", "Parameter"}


def _computes(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return True
    name = called(value)
    return isinstance(value, ast.Call) and bool(name) and name not in _MAKERS and not name[0].isupper() and name not in ("parameters", "DataLoader")


# -- one graph, two losses ------------------------------------------------------------------------


def _shared(scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph) -> list[Fix | None]:
    first = script.statement_at(_users(freed.first).span) if freed.first is not None and scripts.get(_users(freed.first)) is script else None
    if first is None:
        return []
    block = script.block_of(backward)
    if first in block and first is not backward:
        between = block[block.index(first) + 1 : block.index(backward)]
        step = next((s for s in between if isinstance(s, ast.Expr) and called(s.value) == "step"), None)
        if step is not None:
            made = script.statement_at(_users(freed.failing).span) if freed.failing is not None else None
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


def _recomputed_outside(scripts: Scripts, evidence: Evidence, freed: FreedGraph) -> Fix | None:
    """The two backward calls in two functions: the forward pass again in the one that calls both."""
    place = _users(freed.first) if freed.first is not None else None
    inner = scripts.get(place)
    early = inner.statement_at(place.span) if inner is not None else None
    found = split_over_functions(scripts, evidence.frames, inner, early) if inner is not None and early is not None else None
    again = recomputed(found[0], [], found[1], found[2]) if found is not None else None
    if found is None or again is None:
        return None
    words = ", ".join(f"`{short(line, 40)}`" for line in again[1][:2])
    return scripts.fix(
        f"Run {words} again after `{short(found[0].segment(found[1]), 40)}`, which goes through the graph.",
        again[0],
        "It is then computed twice, the second time with the weights of that moment.",
        safe=False,
    )


def _kept(scripts: Scripts, freed: FreedGraph, meaning: str) -> list[Fix | None]:
    """`retain_graph=True` on the backward that came first."""
    place = _users(freed.first) if freed.first is not None else _users(freed.second)
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
    first, second = _users(freed.first) if freed.first is not None else None, _users(freed.second)
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
