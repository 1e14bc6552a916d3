"""The input of `autograd.grad`: ask for its gradient before it is used, or take the part from the whole's gradient."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, GradInput
from torchsleuth.fixes.cuts import without_detach
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Diagnosis, Edit, Fix


class GradInputFixer(Fixer):
    rule = "grad-input"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.grad_input
        place = (found.call.via or found.call) if found is not None else None
        script = scripts.get(place)
        call = script.node_at(place.span) if script is not None else None
        if script is None or not isinstance(call, ast.Call) or called(call) not in ("grad", "backward"):
            return []
        if not found.tensor.requires_grad:
            return [asked_before(scripts, script, call, found.tensor.name, found.tensor.dtype)]
        if found.cut is not None:
            edits = without_detach(scripts, found.cut)
            meaning = "The outer gradient then goes through this step; those of the inner loss count as constants in it, unless `create_graph=True` keeps their history."
            return [scripts.fix(f"{edits[1]}: the history stays.", edits[0], meaning, safe=False)] if edits is not None else []
        return [_of_the_whole(scripts, script, call, found), _zero_for_others(scripts, script, call, found)]


def asked_before(scripts: Scripts, script: Script, asking: ast.AST, name: str, dtype: str, itself: bool = True, late: ast.stmt | None = None) -> Fix | None:
    """`x.requires_grad_(True)` before the first statement of the block that uses `x`, up to the one that asks for the gradient
    (`itself`: which uses it, too), instead of the statement that asks too late."""
    if not name or not all(part.isidentifier() for part in name.split(".")) or not dtype.startswith(("float", "bfloat", "complex")):
        return None
    statement = script.statement_of(asking)
    block = script.block_of(statement) if statement is not None else []
    before = block[: block.index(statement) + 1] if statement in block else []
    made = max((position for position, item in enumerate(before) if name in _stored(item)), default=-1)
    using = next((item for item in before[made + 1 :] if name in _read(item)), None)
    if using is None or using is statement and not itself or not script.is_alone_on_line(using):
        return None
    scope = script.scope_of(statement)
    if made < 0 and isinstance(scope, Function) and name in _arguments(scope) and block is scope.body:
        line, how = f"{name} = {name}.detach().requires_grad_(True)", "The caller's tensor is left as it is."
    else:
        line, how = f"{name}.requires_grad_(True)", ""
    edits = [*script.before(using, line), *(script.removed(late) if late is not None and late is not using and script.is_alone_on_line(late) else ())]
    return scripts.fix(f"Ask for the gradient of `{name}` before it is used: `{line}`.", edits, how)


def _stored(statement: ast.stmt) -> set[str]:
    return {path_of(node) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}


def _read(statement: ast.stmt) -> set[str]:
    return {path_of(node) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)}


def _arguments(function: ast.AST) -> set[str]:
    arguments = function.args
    return {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def _zero_for_others(scripts: Scripts, script: Script, call: ast.Call, found: GradInput) -> Fix | None:
    """`grad(loss, model.parameters())`, of which some took no part: a gradient of zeros for these, as their derivative is."""
    said = next((k.value for k in call.keywords if k.arg == "inputs"), call.args[1] if len(call.args) > 1 else None)
    told = {"allow_unused", "materialize_grads"} & {keyword.arg for keyword in call.keywords}
    line, column = script.end(call)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    tail = script.between(max(script.end(item) for item in given), (line, column)) if given else ""
    if called(call) != "grad" or told or not found.tensor.name or said is None or path_of(said) == found.tensor.name or tail.strip(") \n") != "":
        return None
    meaning = f"The gradient of `{found.tensor.name}`, and of whatever else took no part, is then a tensor of zeros."
    return scripts.fix("Ask for zeros where nothing leads back: `materialize_grads=True`.", [script.insert((line, column - 1), ", materialize_grads=True")], meaning, safe=False)


def _of_the_whole(scripts: Scripts, script: Script, call: ast.Call, found: GradInput) -> Fix | None:
    """`grad(u, x[:, 0])[0]` → `grad(u, x)[0][:, 0]`, in all such calls of the function: the others fail alike."""
    edits = _taken_from_the_whole(script, call, found.made_of)
    if not edits:
        return None
    for other in script.own_nodes(script.scope_of(call)):
        if isinstance(other, ast.Call) and other is not call and ast.unparse(other.func) == ast.unparse(call.func):
            edits += _taken_from_the_whole(script, other, found.made_of)
    return scripts.fix(f"Differentiate with respect to `{found.made_of}`, and take the part from its gradient.", edits)


def _taken_from_the_whole(script: Script, call: ast.Call, whole: str) -> list[Edit]:
    said = next((k.value for k in call.keywords if k.arg == "inputs"), call.args[1] if len(call.args) > 1 else None)
    taken = script.parent(call)
    if not isinstance(said, ast.Subscript) or script.segment(said.value) != whole or names_in(said.slice, ast.Store):
        return []
    first = isinstance(taken, ast.Subscript) and taken.value is call and isinstance(taken.slice, ast.Constant) and taken.slice.value == 0
    if not first:
        return []
    return [script.replace(said, whole), script.insert(script.end(taken), f"[{script.segment(said.slice)}]")]
