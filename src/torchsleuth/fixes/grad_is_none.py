"""A gradient that is None: asked for in time, read in time, kept, let through, or passed over where a parameter took no part."""

from __future__ import annotations

import ast

from torchsleuth.evidence import AbsentGradient, Evidence
from torchsleuth.fixes.cuts import without_detach
from torchsleuth.fixes.descent import written_in_place
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.grad_input import asked_before
from torchsleuth.fixes.ordering import moved_after
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of, users
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.wording import short


class GradIsNoneFixer(Fixer):
    rule = "grad-is-none"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.absent_gradient
        at = scripts.node_at(found.asked) if found is not None else None
        if at is None:
            return []
        script, node = at
        if found.reason == "cleared":
            return [_read_in_time(scripts, script, node, found)]
        if found.reason == "before":
            return [_after_backward(scripts, evidence)]
        if found.reason == "cut":
            return [_let_through(scripts, found)]
        if found.reason in ("constant", "late") and found.tensor.kind != "parameter":
            late = scripts.node_at(found.other) if found.reason == "late" else None
            asked_late = script.statement_of(late[1]) if late is not None and late[0] is script else None
            return [asked_before(scripts, script, node, found.owner, found.tensor.dtype, itself=False, late=asked_late)]
        if found.reason == "computed":
            return [_kept_or_leaf(scripts, script, node, found)]
        if found.reason in ("constant", "unused", "aside", "unreached"):
            return [_passed_over(scripts, script, node, found)]
        return []


def _read_in_time(scripts: Scripts, script: Script, node: ast.AST, found: AbsentGradient) -> Fix | None:
    """The `zero_grad()` put behind what reads the gradients, where both stand in one block."""
    at = scripts.node_at(found.other)
    asking = script.statement_of(node)
    clearing = script.statement_of(at[1]) if at is not None and at[0] is script else None
    if asking is None or clearing is None:
        return None
    edits = moved_after(script, clearing, asking)
    return scripts.fix(f"Clear the gradients after they are read: `{short(script.segment(clearing), 40)}` behind it.", edits) if edits else None


def _after_backward(scripts: Scripts, evidence: Evidence) -> Fix | None:
    """What reads the gradients put behind the backward of the same block that stands after it."""
    for frame in reversed(evidence.frames):
        script = scripts.get(frame.place) if frame.origin == "user" else None
        running = script.statement_at(frame.place.span) if script is not None else None
        if script is None or running is None:
            continue
        following = script.block_of(running)[script.block_of(running).index(running) + 1 :]
        backward = next((item for item in following if any(called(n) == "backward" for n in ast.walk(item))), None)
        if backward is not None:
            edits = moved_after(script, running, backward) if not names_in(running, ast.Store) else None
            return scripts.fix(f"Do it after the backward: `{short(script.segment(running), 40)}` behind it.", edits) if edits else None
    return None


def _let_through(scripts: Scripts, found: AbsentGradient) -> Fix | None:
    """One detach on the way left out."""
    opened = without_detach(scripts, found.cuts[0]) if len(found.cuts) == 1 else None
    return scripts.fix(f"{opened[1]}.", opened[0], f"Right if {found.tensor.called} is to be trained through it.", safe=False) if opened is not None else None


def _kept_or_leaf(scripts: Scripts, script: Script, node: ast.AST, found: AbsentGradient) -> Fix | None:
    """The gradient of a result of the model is kept; what was to be a leaf, and leads to nothing that has a name, is made one."""
    at = scripts.node_at(users(found.made)) if found.made is not None else None
    made, statement = (at[0], at[0].parent(at[1])) if at is not None else (None, None)
    if made is None or not _binds(statement) or statement.value is not at[1]:
        made, statement = script, _last_binding(script, script.statement_of(node), found.owner)
    if statement is None:
        return None
    target = path_of(statement.targets[0])
    steps = [item for item in made.block_of(statement) if _binds(item) and _reads_gradient(item)]  # `w = w - lr * w.grad`, and `b` likewise
    if found.leaves and statement not in steps:
        return scripts.fix(f"Keep the gradient of this result: `{target}.retain_grad()`.", made.after(statement, f"{target}.retain_grad()"), safe=False)
    written = written_in_place(scripts, made, statement)
    if written is not None:
        return written
    changed = steps if statement in steps else [statement]
    names = " and ".join(f"`{path_of(item.targets[0])}`" for item in changed)
    meaning = "Nothing before it gets a gradient then: it is where the history begins."
    edits = [edit for item in changed for edit in made.wrapped(item.value, ".detach().requires_grad_()")]
    return scripts.fix(f"Make a leaf of {names}: `.detach().requires_grad_()`.", edits, meaning, safe=False)


def _binds(statement: ast.AST | None) -> bool:
    return isinstance(statement, ast.Assign) and len(statement.targets) == 1 and bool(path_of(statement.targets[0]))


def _reads_gradient(statement: ast.Assign) -> bool:
    """It computes the new value of a variable from its gradient."""
    target = path_of(statement.targets[0])
    return any(isinstance(part, ast.Attribute) and part.attr == "grad" and path_of(part.value) == target for part in ast.walk(statement.value))


def _last_binding(script: Script, before: ast.stmt | None, name: str) -> ast.Assign | None:
    """The last assignment to a name before a statement, in the same function."""
    own = script.own_nodes(script.scope_of(before)) if before is not None else ()
    bound = [node for node in own if _binds(node) and path_of(node.targets[0]) == name and node.lineno < before.lineno]
    return max(bound, key=lambda node: node.lineno, default=None)


def _passed_over(scripts: Scripts, script: Script, node: ast.AST, found: AbsentGradient) -> Fix | None:
    """`if p.grad is None: continue` in the loop over the parameters, or the same as a condition of the comprehension."""
    statement = script.statement_of(node)
    owner = found.owner
    if statement is None or not owner.isidentifier():
        return None
    title = f"Pass over parameters that {'are frozen' if found.reason == 'constant' else 'took no part'}: `if {owner}.grad is not None`."
    meaning = "Whether they should have been trained is for you to say."
    for around in script.ancestors(node):
        if isinstance(around, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)) and len(around.generators) == 1:
            loop = around.generators[0]
            if owner in _names(loop.target):
                test = f" and {owner}.grad is not None" if loop.ifs else f" if {owner}.grad is not None"
                end = script.end(loop.ifs[-1] if loop.ifs else loop.iter)
                return scripts.fix(title, [script.insert(end, test)], meaning, safe=False)
    loops = script.loops_around(statement)
    if not loops or not isinstance(loops[0], ast.For) or owner not in _names(loops[0].target) or statement not in loops[0].body:
        return None
    step = script.indent_step()
    return scripts.fix(title, script.before(statement, f"if {owner}.grad is None:", f"{step}continue"), meaning, safe=False)


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
