"""What was computed once and gone through more than once, computed anew each time: in a loop, in a closure, after a step."""

from __future__ import annotations

import ast

from torchsleuth.evidence import CarriedTensor, Evidence, FreedGraph
from torchsleuth.fixes.ordering import recomputed, split_over_functions
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of, users
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
    moved = {name for statement in chosen for name in names_in(statement, ast.Store)}
    if any(names_in(statement, ast.Load) & moved for statement in before[before.index(chosen[0]) :] if statement not in chosen):
        return None  # something else is made of it before the loop
    drawing = [s for s in chosen if any(isinstance(node, ast.Call) and called(node) in _DRAWN for node in ast.walk(s))]
    if any(names_in(statement, ast.Store) & names_in(loop, ast.Load) for statement in drawing):
        return None  # what was drawn once (the actions of an episode, say) is data to the loop: drawn anew it is another problem
    first = loop.body[0]
    if first.lineno == loop.lineno:
        return None
    if chosen == [made] and _is_empty(made.value) and backward not in loop.body:
        return _emptied_after(scripts, script, backward, made)
    edits = script.before(first, *(script.segment(statement) for statement in chosen))
    for statement in chosen:
        edits += script.removed(statement)
    if chosen == [made] and _is_empty(made.value):
        meaning = "It then holds what the round itself puts into it; what the rounds before have put there has had its backward."
        return scripts.fix(f"Begin every round of the loop with `{short(script.segment(made), 40)}`.", edits, meaning, safe=False)
    words = ", ".join(f"`{short(script.segment(statement), 40)}`" for statement in chosen[:2])
    meaning = f"It is then computed anew, with the weights {'and new random numbers ' * bool(drawing)}of that round."
    return scripts.fix(f"Compute {words} in every round of the loop.", edits, meaning, safe=False)


def _emptied_after(scripts: Scripts, script: Script, backward: ast.stmt, made: ast.Assign) -> Fix | None:
    """Not every round of the loop has its backward: what was collected for one is let go after it."""
    names = names_in(made, ast.Store)
    block = script.block_of(backward)
    last = [s for s in block[block.index(backward) :] if s is backward or names_in(s, ast.Load) & names][-1]
    if len(names) != 1 or isinstance(last, (ast.Return, ast.Break, ast.Continue)):
        return None
    line = script.segment(made)
    meaning = "It then holds what was put into it since the last backward; what had been put there before has had its own."
    return scripts.fix(f"Begin anew after each backward: `{short(line, 40)}`.", script.after(last, line), meaning, safe=False)


def _is_empty(value: ast.expr) -> bool:
    """`[]`, `{}`, `list()`, `deque(maxlen=8)`."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return not value.elts
    return isinstance(value, ast.Dict) and not value.keys or isinstance(value, ast.Call) and called(value) in ("list", "dict", "deque", "defaultdict") and not value.args


def computed_in_closure(scripts: Scripts, script: Script, backward: ast.stmt, freed: FreedGraph) -> Fix | None:
    """`loss = criterion(net(x), y)` before `def closure():`, which an optimizer calls many times: computed in the closure."""
    function = script.scope_of(backward)
    if not isinstance(function, Function) or freed.first is None or freed.first.span != freed.second.span:
        return None
    block = script.block_of(function)
    before = block[: block.index(function)]
    item = freed.carried[0] if freed.carried else None
    if item is not None:
        statement = script.statement_at(users(item.made).span) if item.made is not None and scripts.get(users(item.made)) is script else None
    else:  # the same tensor twice: the statement that binds what backward is called on
        own = {node.id for node in script.own_nodes(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        wanted = names_in(backward, ast.Load) - own - {argument.arg for argument in function.args.args}
        statement = next((s for s in reversed(before) if isinstance(s, ast.Assign) and names_in(s, ast.Store) & wanted), None)
    if not isinstance(statement, ast.Assign) or statement not in before:
        return None
    chosen = _computation(before, statement)
    covered = item is None or item.since is None or any(s.lineno <= item.since <= (s.end_lineno or s.lineno) for s in chosen)
    first = function.body[0]
    if not covered or first.lineno == function.lineno or any(not isinstance(s, ast.Assign) or "\n" in script.segment(s) for s in chosen):
        return None
    words = ", ".join(f"`{short(script.segment(s), 40)}`" for s in chosen[:2])
    edits = script.before(first, *(script.segment(s) for s in chosen))
    return scripts.fix(f"Compute {words} in `{function.name}`, each time it is called.", edits, "It is then computed with the weights of that moment.", safe=False)


def computed_each_time(scripts: Scripts, item: CarriedTensor) -> Fix | None:
    """`if self.table is None: self.table = f(self.weight)`: what depends on weights that are trained cannot be computed once."""
    place = users(item.made) if item.made is not None else None
    script = scripts.get(place)
    statement = script.statement_at(place.span) if script is not None else None
    guard = script.parent(statement) if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(guard, ast.If) or guard.body != [statement] or guard.orelse or statement.lineno == guard.lineno or not script.is_alone_on_line(statement):
        return None
    target = statement.targets[0]
    if not _is_missing(guard.test, target) or item.since is None or not statement.lineno <= item.since <= (statement.end_lineno or statement.lineno):
        return None
    others = [node for node in ast.walk(script.tree) if isinstance(node, ast.Assign) and node is not statement and any(ast.unparse(goal) == ast.unparse(target) for goal in node.targets)]
    if any(not (isinstance(node.value, ast.Constant) and node.value.value is None) for node in others) or isinstance(script.parent(guard), ast.If) and guard in script.parent(guard).orelse:
        return None
    deeper = len(script.indent_of(statement)) - len(script.indent_of(guard))
    edits = [script.edit((script.first_line(guard), 1), (script.first_line(statement), 1 + deeper), "")]
    edits += script.shifted(script.first_line(statement) + 1, script.end(statement)[0], remove=deeper)
    meaning = "It is then computed with the weights of that moment, and these get their gradient through it."
    return scripts.fix(f"Compute `{short(script.segment(statement), 60)}` each time, not once.", edits, meaning, safe=False)


def _is_missing(test: ast.expr, target: ast.expr) -> bool:
    """`self.table is None`, `not hasattr(self, "table")`, `key not in self.cache`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and called(test.operand) == "hasattr" and isinstance(target, ast.Attribute):
        owner, name = test.operand.args
        return ast.unparse(owner) == ast.unparse(target.value) and isinstance(name, ast.Constant) and name.value == target.attr
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    one, other = ast.unparse(test.left), ast.unparse(test.comparators[0])
    if isinstance(test.ops[0], ast.NotIn) and isinstance(target, ast.Subscript):
        return (one, other) == (ast.unparse(target.slice), ast.unparse(target.value))
    return isinstance(test.ops[0], ast.Is) and other == "None" and one == ast.unparse(target)


def is_made_with_its_weights(scripts: Scripts, item: CarriedTensor) -> bool:
    """Made in the `__init__` of a module: once for good, for the module is what is trained."""
    place = users(item.made) if item.made is not None else None
    script = scripts.get(place)
    statement = script.statement_at(place.span) if script is not None and place.function.endswith(".__init__") else None
    owner = script.class_of(statement) if statement is not None else None
    return owner is not None and any(path_of(base).split(".")[-1].endswith("Module") for base in owner.bases)


def computed_in_method(scripts: Scripts, item: CarriedTensor) -> Fix | None:
    """`self.adjacency = softmax(self.a @ self.b)` in `__init__`: computed in the method that uses it, each time it runs."""
    made, used = users(item.made), users(item.used) if item.used is not None else None
    script = scripts.get(made)
    statement = script.statement_at(made.span) if script is not None else None
    reader = script.statement_at(used.span) if statement is not None and scripts.get(used) is script else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or reader is None:
        return None
    attribute, constructor, method = path_of(statement.targets[0]), script.scope_of(statement), script.scope_of(reader)
    owner = script.class_of(statement)
    if not attribute.startswith("self.") or attribute != item.tensor.name or not isinstance(method, Function) or script.class_of(reader) is not owner:
        return None
    reads = [node for node in ast.walk(owner) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and path_of(node) == attribute]
    if method is constructor or any(script.scope_of(node) is not method for node in reads):
        return None
    chosen = _computation(script.block_of(statement), statement)
    if item.since is None or not any(s.lineno <= item.since <= (s.end_lineno or s.lineno) for s in chosen):
        return None
    if any(not isinstance(s, ast.Assign) or not script.is_alone_on_line(s) or "\n" in script.segment(s) for s in chosen):
        return None
    # What else the constructor knows, the method does not; and what it computes on the way, it may need itself.
    moved = {name for s in chosen for name in names_in(s, ast.Store)}
    arguments = {argument.arg for argument in ast.walk(constructor.args) if isinstance(argument, ast.arg)} - {"self"}
    bound = arguments | {node.id for node in script.own_nodes(constructor) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    others = {node.id for node in script.own_nodes(constructor) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and script.statement_of(node) not in chosen}
    if {name for s in chosen for name in names_in(s, ast.Load)} & (bound - moved) or moved & (others | names_in(method)):
        return None
    body = method.body[1:] if ast.get_docstring(method) is not None else method.body
    if not body or body[0].lineno == method.lineno:
        return None
    edits = script.before(body[0], *(script.segment(s) for s in chosen))
    edits += [edit for s in chosen for edit in script.removed(s)]
    words = ", ".join(f"`{short(script.segment(s), 60)}`" for s in chosen[:2])
    meaning = "It is then computed anew, with the weights of that moment, and these go on getting their gradient through it."
    return scripts.fix(f"Compute {words} in `{method.name}`, each time it runs.", edits, meaning, safe=False)


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


def recomputed_outside(scripts: Scripts, evidence: Evidence, freed: FreedGraph) -> tuple[Fix, bool] | None:
    """The two backward calls in two functions: the forward pass again in the one that calls both, and whether a step of an
    optimizer lies between them there."""
    place = users(freed.first) if freed.first is not None else None
    inner = scripts.get(place)
    early = inner.statement_at(place.span) if inner is not None else None
    found = split_over_functions(scripts, evidence.frames, inner, early) if inner is not None and early is not None else None
    again = recomputed(found[0], [], found[1], found[2]) if found is not None else None
    if found is None or again is None:
        return None
    words = ", ".join(f"`{short(line, 40)}`" for line in again[1][:2])
    fix = scripts.fix(
        f"Run {words} again after `{short(found[0].segment(found[1]), 40)}`, which goes through the graph.",
        again[0],
        "It is then computed twice, the second time with the weights of that moment.",
        safe=False,
    )
    return (fix, _steps(*found)) if fix is not None else None


def _steps(script: Script, early: ast.stmt, running: ast.stmt) -> bool:
    """Whether a statement from `early` to before `running` takes an optimizer's step, in a function of this file or by itself."""
    stepping = {"step"}
    functions = [node for node in ast.walk(script.tree) if isinstance(node, Function)]
    for _ in range(3):
        stepping |= {function.name for function in functions if any(called(node) in stepping for node in ast.walk(function))}
    block = script.block_of(running)
    between = block[block.index(early) : block.index(running)] if early in block else block[: block.index(running)]
    return any(called(node) in stepping for statement in between for node in ast.walk(statement))
