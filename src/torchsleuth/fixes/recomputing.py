"""What was computed once and gone through more than once, computed anew each time: in a loop, in a closure, after a step."""

from __future__ import annotations

import ast

from torchsleuth.evidence import CarriedTensor, Evidence, FreedGraph
from torchsleuth.fixes.ordering import recomputed, split_over_functions
from torchsleuth.fixes.script import Script, Scripts, called, names_in, users
from torchsleuth.model import Fix
from torchsleuth.wording import short

_DRAWN = {"randn", "rand", "randint", "randn_like", "rand_like", "randperm", "normal", "sample", "rsample", "multinomial", "bernoulli"}
_MAKERS = {"randn", "rand", "zeros", "ones", "tensor", "arange", "full", "empty", "randint", "eye", "linspace", "randperm", "clone", "detach", "Parameter"}


def made_outside(scripts: Scripts, script: Script, item: CarriedTensor, loop: ast.stmt | None) -> ast.stmt | None:
    """The statement before the loop, in the loop's own block, that made what each round uses."""
    if item.made is None or loop is None:
        return None
    block = script.block_of(loop)
    before = block[: block.index(loop)]
    statement = script.statement_at(users(item.made).span) if scripts.get(users(item.made)) is script else None
    if statement in before:
        return statement
    # Made in a function called there: the statement that was running then, or the one that binds it in this function.
    caller = script.statement_at(item.during.span) if item.during is not None and scripts.get(item.during) is script else None
    if caller in before:
        return caller
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
    if any(len(names_in(s, ast.Store)) > 1 and names_in(s, ast.Store) & names_in(loop, ast.Store) for s in chosen):
        return None  # `best, losses = None, []`: another of these goes on from round to round
    drawing = [s for s in chosen if any(isinstance(node, ast.Call) and called(node) in _DRAWN for node in ast.walk(s))]
    if any(names_in(statement, ast.Store) & names_in(loop, ast.Load) for statement in drawing):
        return None  # what was drawn once (the actions of an episode, say) is data to the loop: drawn anew it is another problem
    first = loop.body[0]
    if first.lineno == loop.lineno:
        return None
    edits = script.before(first, *(script.segment(statement) for statement in chosen))
    for statement in chosen:
        edits += script.removed(statement)
    if chosen == [made] and _is_empty(made.value):
        meaning = "It then holds what the round itself puts into it; what the rounds before have put there has had its backward."
        return scripts.fix(f"Begin every round of the loop with `{short(script.segment(made), 40)}`.", edits, meaning, safe=False)
    words = ", ".join(f"`{short(script.segment(statement), 40)}`" for statement in chosen[:2])
    meaning = f"It is then computed anew, with the weights {'and new random numbers ' * bool(drawing)}of that round."
    return scripts.fix(f"Compute {words} in every round of the loop.", edits, meaning, safe=False)


def _is_empty(value: ast.expr) -> bool:
    """`[]`, `{}`, `list()`, `deque(maxlen=8)`."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return not value.elts
    return isinstance(value, ast.Dict) and not value.keys or isinstance(value, ast.Call) and called(value) in ("list", "dict", "deque", "defaultdict") and not value.args


def computed_in_closure(scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph) -> Fix | None:
    """`pred = net(x)` before `def closure():`, which an optimizer calls many times: computed in the closure."""
    item, function = freed.carried[0], script.scope_of(backward)
    statement = script.statement_at(users(item.made).span) if item.made is not None and scripts.get(users(item.made)) is script else None
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


def _computes(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return True
    name = called(value)
    return isinstance(value, ast.Call) and bool(name) and name not in _MAKERS and not name[0].isupper() and name not in ("parameters", "DataLoader")


def recomputed_outside(scripts: Scripts, evidence: Evidence, freed: FreedGraph) -> Fix | None:
    """The two backward calls in two functions: the forward pass again in the one that calls both."""
    place = users(freed.first) if freed.first is not None else None
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
