"""A write into a view that autograd refuses: index the base, write out of place, or put view and write under one mode."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.outofplace import out_of_place
from torchsleuth.fixes.script import Script, Scripts, names_in
from torchsleuth.model import Diagnosis, Fix


class InplaceOnViewFixer(Fixer):
    rule = "inplace-on-view"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        target, frame = evidence.inplace_target, evidence.user_frame
        place = target.place if target is not None else frame.place if frame is not None else None
        if place is not None and place.in_library:
            place = place.via
        script = scripts.get(place)
        statement = script.statement_at(place.span) if script is not None else None
        if script is None or statement is None or "its base or another view" in evidence.exception.message:
            return []
        fixes: list[Fix | None] = []
        name = target.tensor.name if target is not None else ""
        indexed = _indexed_rows(scripts, script, statement, name)
        rewrite = out_of_place(script, place.span)
        replaced = None
        if rewrite is not None:
            meaning = f"The change is then no longer seen by {rewrite.seen_by}." if rewrite.seen_by else ""
            replaced = scripts.fix(rewrite.title, rewrite.edits, meaning, safe=not rewrite.seen_by)
        if "no_grad mode" in evidence.exception.message or "inference mode" in evidence.exception.message:
            torch = script.module_name("torch")
            under = script.inside(f"with {torch}.no_grad():", statement, statement) if torch else []
            fixes.append(
                scripts.fix("Write under `no_grad` too, where the view was made.", under, "The write is then not differentiated.", safe=False)
            )
        return [*fixes, indexed, replaced]


def _indexed_rows(scripts: Scripts, script: Script, statement: ast.stmt, name: str) -> Fix | None:
    """`for row in x: row += 1` as `for i in range(len(x)): x[i] += 1`."""
    loop = next((item for item in script.loops_around(statement) if isinstance(item, ast.For)), None)
    if loop is None or not name or loop.orelse:
        return None
    counter, rows = None, loop.iter
    if isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2 and isinstance(loop.iter, ast.Call):
        function = loop.iter.func
        if not (isinstance(function, ast.Name) and function.id == "enumerate" and len(loop.iter.args) == 1):
            return None
        first, second = loop.target.elts
        if not (isinstance(first, ast.Name) and isinstance(second, ast.Name) and second.id == name):
            return None
        counter, rows = first.id, loop.iter.args[0]
    elif not (isinstance(loop.target, ast.Name) and loop.target.id == name):
        return None
    if not isinstance(rows, (ast.Name, ast.Attribute)):
        return None
    uses = [node for inner in loop.body for node in ast.walk(inner) if isinstance(node, ast.Name) and node.id == name]
    rebound = any(
        isinstance(node, ast.Assign) and any(name in names_in(target, ast.Store) for target in node.targets)
        for inner in loop.body
        for node in ast.walk(inner)
    )
    after = any(isinstance(node, ast.Name) and node.id == name and node.lineno > (loop.end_lineno or 0) for node in script.own_nodes(script.scope_of(loop)))
    if rebound or after or not uses:
        return None
    taken = names_in(script.tree)
    if counter is None:
        counter = next((candidate for candidate in ("i", "j", "k", f"{name}_index") if candidate not in taken), None)
        if counter is None:
            return None
    base = script.segment(rows)
    edits = [script.edit(script.start(loop.target), script.end(loop.iter), f"{counter} in range(len({base}))")]
    edits += [script.replace(node, f"{base}[{counter}]") for node in uses]
    return scripts.fix(f"Index `{base}`, one row at a time: `{base}[{counter}]`.", edits)
