"""Where what is carried over is cut off from its history: where it is used, kept or made, and under which name."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence

from torchsleuth.evidence import CarriedTensor
from torchsleuth.fixes.copies import occurrences
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of, users
from torchsleuth.fixes.states import Holds, detached, detaching, held
from torchsleuth.model import Edit, Fix

_EACH_TIME = "Gradients then stop there each time it is run."
TRUNCATED = "Gradients then stop at the step boundary (truncated backpropagation through time)."


def detached_where_used(scripts: Scripts, carried: Sequence[CarriedTensor]) -> Fix | None:
    """All that is carried over, where that can be done for each: one that is left takes the old graph along."""
    edits = [_detaching_use(scripts, item) for item in carried]
    words = ", ".join(dict.fromkeys(f"`{item.tensor.name}`" for item in carried))
    if not carried or any(edit is None for edit in edits):
        return None
    verb = "enters" if len(edits) == 1 else "enter"
    return scripts.fix(f"Detach {words} where {'it' if len(edits) == 1 else 'they'} {verb} the new step.", [one for edit in edits for one in edit], _EACH_TIME, safe=False)


def detached_where_held(scripts: Scripts, script: Script, backward: ast.stmt, carried: Sequence[CarriedTensor]) -> Fix | None:
    """`model.memory.state = model.memory.state.detach()` after backward, where its function reaches all that objects carry over."""
    loops = script.loops_around(backward)
    found: dict[str, str] = {}
    for item in carried:
        own = [holder for holder in item.holders if not (loops and is_set_anew(loops[0], re.split(r"[.\[]", holder.path)[0]))]
        if not own:
            return None
        found |= {holder.path: holder.kind for holder in own}
    lines = [f"{path} = {detaching(path, Holds(kind))}" for path, kind in found.items()]
    words = ", ".join(f"`{path}`" for path in found)
    return scripts.fix(f"Detach {words} after each step's backward.", script.after(backward, *lines), TRUNCATED, safe=False) if lines else None


def detached_where_kept(scripts: Scripts, carried: Sequence[CarriedTensor]) -> Fix | None:
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


def detached_where_stored(scripts: Scripts, carried: Sequence[CarriedTensor]) -> Fix | None:
    """`self.data.append((z, reward))` → `self.data.append((z.detach(), reward))`."""
    places = list(dict.fromkeys(item.stored.span for item in carried if item.stored is not None and item.is_data))
    found = [scripts.node_at(item.stored) for item in carried if item.stored is not None and item.is_data]
    if len(places) != 1 or len(found) != len(carried) or found[0] is None:
        return None
    script, node = found[0]
    meaning = "What is kept there is then data: no gradient goes back through it to what made it."
    return scripts.fix(f"Detach `{script.segment(node)}` where it is put away.", script.wrapped(node, ".detach()"), meaning, safe=False)


def _detaching_use(scripts: Scripts, item: CarriedTensor) -> list[Edit] | None:
    place = users(item.used) if item.used is not None else None
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    if script is None or not isinstance(node, ast.expr) or not item.tensor.name or item.within:
        return None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(assigned := script.statement_of(node), ast.Assign):
        node = assigned.value  # `self.keys[i] = key`: it is what is written
    if held(script, node, item.tensor.name) not in (Holds.TENSOR, Holds.UNKNOWN) or _starts_as_number(script, node, item.tensor.name):
        return None
    found = occurrences(script, node, item.tensor.name)
    if len(found) != 1 or _is_written(script, found[0]):
        return None
    if _may_be_none(script, node, item.tensor.name):
        text = f"{script.segment(found[0])} if {script.segment(found[0])} is None else {script.segment(found[0])}.detach()"
        return [script.replace(found[0], text if isinstance(script.parent(found[0]), (ast.Call, ast.keyword)) else f"({text})")]
    return script.wrapped(found[0], ".detach()")


def _is_written(script: Script, node: ast.expr) -> bool:
    """`s` of `s.mul_(2)`: a detached copy of it would be written into, and `s` keep its history."""
    link = script.parent(node)
    return isinstance(link, ast.Attribute) and link.value is node and link.attr.endswith("_") and not link.attr.endswith("__")


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


def for_another_optimizer(scripts: Scripts, script: Script, backward: ast.stmt, item: CarriedTensor) -> list[Fix | None]:
    """The second backward is for an optimizer that does not train what made the tensor (the generator, in the
    discriminator's step): its gradient is not wanted there."""
    place = users(item.made)
    maker = script.node_at(place.span)
    owner = path_of(maker.func) if isinstance(maker, ast.Call) else ""
    trained = _trained_after(script, backward)
    if not owner or not trained or any(owner == name or owner.startswith(f"{name}.") or name.startswith(f"{owner}.") for name in trained):
        return []
    fix = detached_where_used(scripts, [item])
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


def detached_where_made(scripts: Scripts, script: Script, statement: ast.stmt, item: CarriedTensor) -> Fix | None:
    """What was computed before the loop from values that are not computed there again is data to the loop."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or item.since is not None or not item.tensor.name:
        return None
    meaning = f"`{item.tensor.name}` is then data to the loop: no gradient goes back through it."
    if path_of(statement.targets[0]) == item.tensor.name:
        edits = script.wrapped(statement.value, ".detach()")
    else:
        edits = detached(script, [item.tensor.name], statement)  # one of several that the statement unpacks
    return scripts.fix(f"Detach `{item.tensor.name}` where it is made.", edits, meaning, safe=False)


# -- names ----------------------------------------------------------------------------------------


def is_set_in(script: Script, backward: ast.stmt, name: str) -> bool:
    """An attribute that the class of this method sets."""
    owner = script.class_of(backward)
    return any(path_of(node) == name and isinstance(node.ctx, ast.Store) for node in ast.walk(owner) if isinstance(node, ast.Attribute))


def outside_name(scripts: Scripts, script: Script, item: CarriedTensor, name: str) -> str:
    """`self.h` in a module's forward is `model.h` where the module was made: `model = Stateful()`."""
    place = users(item.used) if item.used is not None else None
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


def is_visible(script: Script, backward: ast.stmt, name: str) -> bool:
    """The name is bound in the function (or module) of the backward call."""
    scope = script.scope_of(backward)
    bound = {path_of(node) for node in script.own_nodes(scope) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}
    # An attribute of a module that is bound there, or at the file's top level, can be set from there too.
    owner = name.split(".")[0]
    return name in bound or ("." in name and owner != "self" and (owner in bound or owner in names_in(script.tree.body, ast.Store)))


def is_object(script: Script, backward: ast.stmt, name: str) -> bool:
    """`m = Memory()`: the name means something else here than where the tensor was carried."""
    scope = script.scope_of(backward)
    return any(
        isinstance(node, ast.Assign) and called(node.value)[:1].isupper() and any(path_of(target) == name for target in node.targets)
        for node in script.own_nodes(scope)
    )


def is_set_anew(loop: ast.For | ast.While, name: str) -> bool:
    """Each round binds the variable before it reads it: what the round before has left in it is gone."""
    for statement in loop.body:
        if any(path_of(node) == name and isinstance(node.ctx, ast.Load) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))):
            return False
        if isinstance(statement, ast.Assign) and name in {path_of(target) for target in statement.targets}:
            return name.isidentifier()
        if isinstance(statement, ast.AugAssign) and path_of(statement.target) == name:
            return False
    return False


def is_running_sum(loop: ast.AST, name: str) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and path_of(node.target) == name and isinstance(node.op, ast.Add):
            return True
        if isinstance(node, ast.Assign) and any(path_of(t) == name for t in node.targets) and isinstance(node.value, ast.BinOp):
            if isinstance(node.value.op, ast.Add) and name in {path_of(node.value.left), path_of(node.value.right)}:
                return True
    return False
