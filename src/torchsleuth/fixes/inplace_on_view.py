"""A write into a view that autograd refuses: write out of place, collect the rows anew, or put view and write under one mode."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, InplaceTarget
from torchsleuth.fixes.aliases import APART, is_seen_elsewhere
from torchsleuth.fixes.elements import is_lost_with_the_round, renewed
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.outofplace import is_for_the_caller, out_of_place, write_in
from torchsleuth.fixes.pieces import one_view_at_a_time
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of
from torchsleuth.model import Diagnosis, Edit, Fix


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
        if "no_grad mode" in evidence.exception.message or "inference mode" in evidence.exception.message:
            torch = script.module_name("torch")
            under = script.inside(f"with {torch}.no_grad():", statement, statement) if torch else []
            fixes.append(
                scripts.fix("Write under `no_grad` too, where the view was made.", under, "The write is then not differentiated.", safe=False)
            )
        if is_lost_with_the_round(script, statement) and _is_loop_over_pieces(script, statement):
            return [*fixes, renewed(scripts, script, statement, "`{name}` is then a {kind} of new tensors; what the pieces were taken from keeps its values.")]
        rows = _Rows.around(script, statement, target.tensor.name if target is not None else "")
        if rows is not None:
            # A new tensor for the loop's variable would be forgotten with the round: what the loop runs over has to change.
            return [*fixes, rows.indexed(scripts) if rows.is_simple else None, rows.collected(scripts)]
        pieces = _pieces(scripts, script, statement, target)
        rewrite = out_of_place(script, place.span)
        if pieces is None and rewrite is not None and not is_lost_with_the_round(script, statement):
            meaning = f"The change is then no longer seen by {rewrite.seen_by}." if rewrite.seen_by else ""
            pieces = scripts.fix(rewrite.title, rewrite.edits, meaning, safe=not rewrite.seen_by)
        if pieces is not None and pieces.meaning and target is not None and "returns multiple views" in evidence.exception.message:
            fixes.append(one_view_at_a_time(scripts, target))
        return [*fixes, pieces]


def _is_loop_over_pieces(script: Script, statement: ast.stmt) -> bool:
    """`for part in parts:` after `parts = x.chunk(3)`; a loop over a tensor itself runs over its rows."""
    loop = script.loops_around(statement)[0]
    over = {path_of(node) for node in ast.walk(loop.iter) if isinstance(node, (ast.Name, ast.Attribute))} if isinstance(loop, ast.For) else set()
    bound = [node.value for node in ast.walk(script.tree) if isinstance(node, ast.Assign) and any(path_of(goal) in over for goal in node.targets)]
    return any(called(value) in APART or called(value) in ("list", "tuple") or isinstance(value, (ast.List, ast.ListComp, ast.Tuple)) for value in bound)


def _pieces(scripts: Scripts, script: Script, statement: ast.stmt, target: InplaceTarget | None) -> Fix | None:
    """`gate, value = h.chunk(2)`: every write into one of the pieces out of place, for each would be the next failure."""
    made = script.statement_at(target.made.span) if target is not None and target.made is not None and scripts.get(target.made) is script else None
    if not isinstance(made, ast.Assign) or script.scope_of(made) is not script.scope_of(statement):
        return None
    names = {name for goal in made.targets if isinstance(goal, ast.Tuple) for name in names_in(goal, ast.Store)}
    writes = []
    for node in script.own_nodes(script.scope_of(statement)):
        if isinstance(node, ast.stmt) and (node.lineno, node.col_offset) >= (made.lineno, made.col_offset):
            write = write_in(node)
            if write is not None and write[1] in names:
                writes.append((node, *write))
    if statement not in [node for node, _, _ in writes] or len(writes) < 2:
        return None
    edits: list[Edit] = []
    seen, copied = "", set()
    for _, write, name in writes:
        rewrite = out_of_place(script, script.span(write))
        if rewrite is None:
            return None
        seen = seen or rewrite.seen_by
        if rewrite.copies and name in copied:
            continue
        copied |= {name} if rewrite.copies else set()
        edits += rewrite.edits
    listed = ", ".join(f"`{name}`" for name in sorted({name for _, _, name in writes}))
    meaning = f"The changes are then no longer seen by {seen}." if seen else ""
    return scripts.fix(f"Give {listed} new tensors instead of writing into the pieces of one.", edits, meaning, safe=not seen)


class _Rows:
    """`for row in x:` (or `for i, row in enumerate(x):`) with a write into `row`."""

    def __init__(self, script: Script, loop: ast.For, name: str, counter: str | None, rows: ast.expr) -> None:
        self.script, self.loop, self.name, self.counter, self.rows = script, loop, name, counter, rows
        self.base = script.segment(rows)
        self.uses = [node for inner in loop.body for node in ast.walk(inner) if isinstance(node, ast.Name) and node.id == name]
        self.writes = [(node, *write) for inner in loop.body for node in ast.walk(inner) if isinstance(node, ast.stmt) and (write := write_in(node))]

    @classmethod
    def around(cls, script: Script, statement: ast.stmt, name: str) -> _Rows | None:
        loop = next((item for item in script.loops_around(statement) if isinstance(item, ast.For)), None)
        if loop is None or not name or loop.orelse:
            return None
        counter, rows = None, loop.iter
        if isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2 and isinstance(loop.iter, ast.Call):
            function = loop.iter.func
            if not (isinstance(function, ast.Name) and function.id == "enumerate" and len(loop.iter.args) == 1 and not loop.iter.keywords):
                return None
            first, second = loop.target.elts
            if not (isinstance(first, ast.Name) and isinstance(second, ast.Name) and second.id == name):
                return None
            counter, rows = first.id, loop.iter.args[0]
        elif not (isinstance(loop.target, ast.Name) and loop.target.id == name):
            return None
        return cls(script, loop, name, counter, rows) if isinstance(rows, (ast.Name, ast.Attribute)) else None

    @property
    def is_simple(self) -> bool:
        """The row is only written, never read: nothing can be saved and then overwritten."""
        return len(self.writes) == len(self.uses)

    def _is_rebound(self) -> bool:
        return any(
            isinstance(node, ast.Assign) and any(self.name in names_in(target, ast.Store) for target in node.targets)
            for inner in self.loop.body
            for node in ast.walk(inner)
        )

    def _is_read_after(self) -> bool:
        scope, end = self.script.scope_of(self.loop), self.loop.end_lineno or 0
        return any(isinstance(node, ast.Name) and node.id == self.name and node.lineno > end for node in self.script.own_nodes(scope))

    def indexed(self, scripts: Scripts) -> Fix | None:
        """`for i in range(len(x)): x[i] += 1`."""
        if self._is_rebound() or self._is_read_after() or not self.uses:
            return None
        script, counter, taken = self.script, self.counter, names_in(self.script.tree)
        if counter is None:
            counter = next((candidate for candidate in ("i", "j", "k", f"{self.name}_index") if candidate not in taken), None)
            if counter is None:
                return None
        edits = [script.edit(script.start(self.loop.target), script.end(self.loop.iter), f"{counter} in range(len({self.base}))")]
        edits += [script.replace(node, f"{self.base}[{counter}]") for node in self.uses]
        return scripts.fix(f"Index `{self.base}`, one row at a time: `{self.base}[{counter}]`.", edits)

    def collected(self, scripts: Scripts) -> Fix | None:
        """New rows put into a list and stacked after the loop."""
        script, loop, torch = self.script, self.loop, self.script.module_name("torch")
        leaves = any(isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Yield)) for inner in loop.body for node in ast.walk(inner))
        inside = any(path_of(node) == self.base for inner in loop.body for node in ast.walk(inner))
        if torch is None or leaves or inside or self._is_rebound() or loop.body[0].lineno == loop.lineno:
            return None
        edits: list[Edit] = []
        for _, write, name in self.writes:
            rewrite = out_of_place(script, script.span(write)) if name == self.name else None
            if name == self.name and rewrite is None:
                return None
            edits += rewrite.edits if rewrite is not None else []
        taken = names_in(script.tree)
        rows = next((candidate for candidate in (f"{self.name}s", f"new_{self.name}s", f"{self.name}_list") if candidate not in taken), None)
        last = loop.body[-1]
        if rows is None or not (script.is_alone_on_line(last) or hasattr(last, "body")):
            return None
        end = script.end_of_block(loop)
        edits += script.before(loop, f"{rows} = []")
        inner, outer = script.indent_of(loop.body[0]), script.indent_of(loop)
        back = is_for_the_caller(script, loop, self.base)
        stacked = f"{self.base}.copy_({torch}.stack({rows}))" if back else f"{self.base} = {torch}.stack({rows})"
        edits = script.followed(edits, end, f"\n{inner}{rows}.append({self.name})\n{outer}{stacked}")
        if back:
            edits += script.wrapped(self.rows, ".clone()")  # rows of a tensor that is then written into could not be differentiated
            return scripts.fix(f"Collect the new rows in a list, and write them back at once: `{stacked}`.", edits)
        seen = is_seen_elsewhere(script, loop, self.rows)
        meaning = f"The change is then no longer seen by {seen}." if seen else ""
        return scripts.fix(f"Collect the new rows in a list, and `{torch}.stack` them.", edits, meaning, safe=not seen)
