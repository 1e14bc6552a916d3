"""Recording switched on again where it was off: a `no_grad` block or decorator, a switch, a reentrant checkpoint."""

from __future__ import annotations

import ast

from torchsleuth.evidence import GradientCut, LostGradient
from torchsleuth.fixes.script import Function, Script, Scripts, called
from torchsleuth.model import Edit, Fix


def recorded(scripts: Scripts, lost: LostGradient) -> list[Fix | None]:
    cut = next(cut for cut in lost.cuts if cut.reason == "no_grad")
    found = scripts.node_at(cut.wrapper)
    if found is None:
        return [_switched_on(scripts, cut)]
    script, wrapper = found
    parent = script.parent(wrapper)
    if isinstance(parent, Function) and any(wrapper is item for item in parent.decorator_list):
        line = wrapper.lineno
        if script.source.lines[line - 1].strip().startswith("@") and script.end(wrapper)[0] == line:
            edits = [script.edit((line, 1), (line + 1, 1), "")]
            return [scripts.fix(f"Take `@{script.segment(wrapper)}` off `{parent.name}`: it is differentiated.", edits)]
        return []
    with_ = script.parent(parent) if isinstance(parent, ast.withitem) else None
    if not isinstance(with_, ast.With):
        return []
    if len(with_.items) > 1:
        return [_taken_out(scripts, script, with_, parent) or _enabled(scripts, script, wrapper)]
    if with_.items[0].optional_vars is not None:
        return [_enabled(scripts, script, wrapper)]
    return [_unwrapped(scripts, script, with_) or _enabled(scripts, script, wrapper)]


def _unwrapped(scripts: Scripts, script: Script, with_: ast.With) -> Fix | None:
    """The body of the block moved out to the left, the header gone."""
    first = with_.body[0]
    if first.lineno == with_.lineno:
        return None
    remove = len(script.indent_of(first)) - len(script.indent_of(with_))
    top = script.first_line(first)
    if script.source.lines[top - 1 - 0].strip() == "" or remove <= 0:
        return None
    edits = [script.edit((with_.lineno, 1), (script.end(with_.items[0].context_expr)[0] + 1, 1), "")]
    comments = script.end(with_.items[0].context_expr)[0] + 1
    edits += script.shifted(comments, script.end(with_)[0], remove=remove)
    # The first shifted line starts where the header's removal ends; both edits keep their order.
    header, rest = edits[0], edits[1:]
    if rest and rest[0].span.line == header.span.end_line:
        joined = script.edit((header.span.line, 1), (rest[0].span.end_line, rest[0].span.end_column), "")
        edits = [joined, *rest[1:]]
    text = " ".join(script.between(script.start(with_), script.end(with_.items[0].context_expr)).split())
    return scripts.fix(f"Compute it outside `{text}`.", edits)


def _taken_out(scripts: Scripts, script: Script, with_: ast.With, item: ast.withitem) -> Fix | None:
    """`with torch.no_grad(), other():` → `with other():`."""
    if item.optional_vars is not None:
        return None
    at = with_.items.index(item)
    node = item.context_expr
    if at + 1 < len(with_.items):
        edit = script.edit(script.start(node), script.start(with_.items[at + 1].context_expr), "")
        between = script.between(script.end(node), script.start(with_.items[at + 1].context_expr))
    else:
        last = with_.items[at - 1].optional_vars or with_.items[at - 1].context_expr
        edit = script.edit(script.end(last), script.end(node), "")
        between = script.between(script.end(last), script.start(node))
    return scripts.fix(f"Compute it outside `{script.segment(node)}`.", [edit]) if between.strip() == "," else None


def _enabled(scripts: Scripts, script: Script, wrapper: ast.AST) -> Fix | None:
    torch = script.module_name("torch")
    return scripts.fix("Record what is computed there: `enable_grad`.", [script.replace(wrapper, f"{torch}.enable_grad()")]) if torch else None


def not_reentrant(scripts: Scripts, lost: LostGradient) -> Fix | None:
    """`use_reentrant=False` at every checkpoint that cuts."""
    edits: list[Edit] = []
    for cut in lost.cuts:
        found = scripts.node_at(cut.place) if cut.reason == "checkpoint" and not cut.place.in_library else None
        if found is None or not isinstance(found[1], ast.Call) or not found[1].args:
            return None
        script, call = found
        said = next((k for k in call.keywords if k.arg == "use_reentrant"), None)
        if any(k.arg is None for k in call.keywords) or said is not None and not isinstance(said.value, ast.Constant):
            return None
        last = max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)])
        edits.append(script.replace(said.value, "False") if said is not None else script.insert(last, ", use_reentrant=False"))
    return scripts.fix("`use_reentrant=False` records what runs inside the checkpoint as usual.", edits)


def _switched_on(scripts: Scripts, cut: GradientCut) -> Fix | None:
    """`torch.set_grad_enabled(False)` as a statement of its own, the one that ran or the only one in the file."""
    script = scripts.get(cut.switch or cut.place.via or cut.place)
    if script is None:
        return None
    found = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node) == "set_grad_enabled" and node.args and isinstance(node.args[0], ast.Constant)
        and node.args[0].value is False and isinstance(script.parent(node), ast.Expr)
    ]  # fmt: skip
    if cut.switch is not None:
        found = [node for node in found if node.lineno == cut.switch.span.line]
    if len(found) != 1:
        return None
    confined = _confined(scripts, script, found[0], cut)
    if confined is not None:
        return confined
    return scripts.fix("Leave recording on: `set_grad_enabled(True)`.", [script.replace(found[0].args[0], "True")])


def _confined(scripts: Scripts, script: Script, switch: ast.Call, cut: GradientCut) -> Fix | None:
    """A function that switches recording off for its own work and leaves it off: a `no_grad` block around the rest of it instead."""
    statement, function = script.statement_of(switch), script.scope_of(switch)
    if not isinstance(function, Function) or statement not in function.body:
        return None
    place = cut.place.via or cut.place
    if scripts.get(place) is script and function.lineno <= place.span.line <= (function.end_lineno or function.lineno):
        return None  # what was lost is computed in the function itself
    torch, rest = script.module_name("torch"), function.body[function.body.index(statement) + 1 :]
    works = [item for item in rest if not _only_returns(item)]
    if torch is None or not works or not script.is_alone_on_line(statement):
        return None
    edits = script.shifted(script.first_line(works[0]), script.end(works[-1])[0], deeper=script.indent_step())
    header = f"with {torch}.no_grad():"
    return scripts.fix(f"Switch it off for `{function.name}` alone: `{header}` around its work.", [script.replace(statement, header), *edits])


def _only_returns(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return) and not any(isinstance(node, (ast.Call, ast.BinOp)) for node in ast.walk(statement))
