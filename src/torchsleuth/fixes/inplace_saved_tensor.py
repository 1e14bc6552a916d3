"""An overwritten saved tensor: write out of place, copy what is saved, or change the order of step and backward."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, StaleSave, WriteSite
from torchsleuth.fixes.aliases import is_list, is_read_later, is_seen_elsewhere
from torchsleuth.fixes.buffers import stacked
from torchsleuth.fixes.copies import cloned_saves, occurrences
from torchsleuth.fixes.elements import is_lost_with_the_round, renewed
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.modules import flags_in, inplace_flags, switched_off
from torchsleuth.fixes.ordering import moved_after, put_after, recomputed, split_over_functions
from torchsleuth.fixes.outofplace import Rewrite, is_for_the_caller, out_of_place, write_in
from torchsleuth.fixes.recomputing import computed_in_loop
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.fixes.states import carried_names, detached
from torchsleuth.model import Diagnosis, Edit, Fix
from torchsleuth.wording import short

_RENEWED = "`{name}` is then a {kind} of new tensors; whoever else holds the old ones no longer sees the change."


class InplaceSavedTensorFixer(Fixer):
    rule = "inplace-saved-tensor"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failing = next((save for save in evidence.stale if save.failing), None)
        if failing is None:
            return []
        # Backward stopped at the first; the fix has to help the others too.
        every = [failing, *(save for save in evidence.stale if save is not failing)]
        sites = _sites(every)
        _note_allocations(scripts, every)
        if any(_is_step(scripts, site) for site in sites):
            return _around_step(scripts, evidence, every, sites)
        if failing.tensor.kind == "parameter" and failing.tensor.is_leaf:
            unrecorded = _unrecorded_target(scripts, every) if failing.untrained else None
            if unrecorded is not None:
                return [unrecorded]
            moved = _weights_after_backward(scripts, evidence, sites)
            if moved is not None:
                return [moved]
        module = _inplace_module(scripts, sites)
        hidden = _loses_history(failing, sites) or _is_written_unseen(scripts, failing)
        rewrite = _out_of_place(scripts, sites, every) if not hidden else None
        clone = _clones(scripts, every)
        argument = _argument_copied(scripts, failing, sites)
        rows = stacked(scripts, sites) if not hidden else None
        # A copy per write costs more than a copy per save, which often stands outside the loop.
        first = [fix for fix in (module, rewrite) if fix is not None and not fix.meaning and "copy" not in fix.title]
        rest = [fix for fix in (module, rewrite) if fix is not None and fix not in first]
        if clone is not None and not (all(save.complete for save in every) and all(_is_told_apart(scripts, site) for site in sites)):
            # Not every write is known: to make those that are out of place may not be enough; a copy made in time is.
            return [clone, argument]
        memory = _memory_copied(scripts, evidence, every)
        return [memory] if memory is not None else [*first, rows, clone, *rest, argument]


def _note_allocations(scripts: Scripts, saves: list[StaleSave]) -> None:
    """`rows = table[index]` may be a view or a copy, which the source does not say: the log does, where all saves agree."""
    born = {save.born.span: save.born for save in saves if save.born is not None}
    script = scripts.get(next(iter(born.values()))) if len(born) == 1 and all(save.born is not None for save in saves) else None
    statement = script.statement_at(next(iter(born))) if script is not None else None
    if isinstance(statement, ast.Assign):
        script.allocating.add(statement)


def _is_told_apart(scripts: Scripts, site: WriteSite) -> bool:
    """Seen by the log, or alone on its line: lines alone do not tell `h *= 2; h += 1` from one another."""
    if site.first_version is not None:
        return True
    script = scripts.get(site.place)
    statement = script.statement_at(site.place.span) if script is not None else None
    return script is not None and statement is not None and script.is_alone_on_line(statement)


def _saved_in(script: Script, statement: ast.stmt, site: WriteSite, save: StaleSave) -> bool:
    place = save.place
    return place is not None and place.span.file == site.place.span.file and script.statement_at(place.span) is statement


def _sites(saves: list[StaleSave]) -> list[WriteSite]:
    found: dict[object, WriteSite] = {}
    for save in saves:
        for site in save.writes:
            found.setdefault(site.place.span, site)
    return list(found.values())


# -- the write ------------------------------------------------------------------------------------


def _out_of_place(scripts: Scripts, sites: list[WriteSite], saves: list[StaleSave]) -> Fix | None:
    rewrites: list[Rewrite] = []
    spelled: set[object] = set()
    for site in sites:
        script = scripts.get(site.place)
        if script is None:
            return None
        statement = script.statement_at(site.place.span)
        if statement is None:
            return None
        if statement in spelled:
            continue  # two writes of one statement: `x[i] += y` adds and then assigns
        spelled.add(statement)
        same = [other for other in sites if script.statement_at(other.place.span) is statement and other.place.span.file == site.place.span.file]
        lead = max(same, key=lambda other: (other.place.span.end_line, other.place.span.end_column))
        on_tensor = _is_tensor_subscript(script, statement, same)
        if is_lost_with_the_round(script, statement):
            return renewed(scripts, script, statement, _RENEWED) if len({site.place.span for site in sites}) == 1 else None
        rewrite = out_of_place(script, lead.place.span, on_tensor)
        written = write_in(statement)
        if rewrite is None or written is not None and is_for_the_caller(script, statement, written[1]):
            return None
        if rewrite.copies and any(_saved_in(script, statement, site, save) for save in saves):
            return None  # `x[i] = x[i].clamp(...)` saves the very copy that it then writes into
        rewrites.append(rewrite)
    if not rewrites:
        return None
    seen = next((rewrite.seen_by for rewrite in rewrites if rewrite.seen_by), "")
    meaning = f"The change is then no longer seen by {seen}." if seen else ""
    edits = [edit for rewrite in rewrites for edit in rewrite.edits]
    return scripts.fix(rewrites[0].title, edits, meaning, safe=not seen)


def _is_tensor_subscript(script: Script, statement: ast.stmt, sites: list[WriteSite]) -> bool:
    """Whether `x` in `x[i] += y` is a tensor: then the statement also assigns into it."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        if any(site.operation == "__setitem__" or site.assigned for site in sites):
            return True
        observed = all(site.first_version is not None for site in sites)
        return not observed and not is_list(script, statement, statement.target.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        inner: ast.expr = statement.value
        while isinstance(inner, (ast.Call, ast.Attribute)):
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        if isinstance(inner, ast.Subscript):
            return not is_list(script, statement, inner.value)
    return True


def _loses_history(failing: StaleSave, sites: list[WriteSite]) -> bool:
    """Under `no_grad` a write leaves the tensor's history alone, and a new tensor would have none."""
    tensor = failing.tensor
    history = failing.is_result or (tensor.requires_grad and tensor.kind != "buffer")
    return history and any(site.grad_enabled is False for site in sites)


def _is_written_unseen(scripts: Scripts, failing: StaleSave) -> bool:
    """`h.data.add_(5)` changes what was saved too, and no version tells: only a copy made in time helps then."""
    script = scripts.get(failing.place) if failing.place is not None else None
    name = failing.tensor.name
    if script is None or not name:
        return False
    return any(isinstance(node, ast.Attribute) and node.attr == "data" and path_of(node.value) == name for node in ast.walk(script.tree))


def _inplace_module(scripts: Scripts, sites: list[WriteSite]) -> Fix | None:
    edits: list[Edit] = []
    seen = ""
    for site in sites:
        script = scripts.get(site.place if not site.place.in_library else site.place.via)
        place = site.place if not site.place.in_library else site.place.via
        if script is None or place is None:
            return None
        call = script.node_at(place.span)
        maker = scripts.get(site.made) if site.made is not None else None
        own = flags_in(maker.node_at(site.made.span)) if maker is not None else []
        if len(own) == 1:
            edits += switched_off(maker, own)
            seen = seen or (_input_seen(script, script.statement_of(call), call) if isinstance(call, ast.Call) else "")
            continue
        flags = inplace_flags(script, call)
        statement = script.statement_of(call) if call is not None else None
        if not flags or isinstance(statement, ast.Expr) or not isinstance(call, ast.Call):
            return None
        edits += switched_off(script, flags)
        seen = seen or _input_seen(script, statement, call)
    meaning = f"What went into the module is then no longer changed for {seen}." if seen else ""
    return scripts.fix("Let the module compute out of place: `inplace=False`.", edits, meaning, safe=not seen)


def _input_seen(script: Script, statement: ast.stmt, call: ast.Call) -> str:
    """Who reads the module's input after the call and has so far seen it changed."""
    for argument in call.args:
        if not isinstance(argument, (ast.Name, ast.Attribute)):
            continue
        name = script.segment(argument)
        rebound = isinstance(statement, ast.Assign) and any(script.segment(target) == name for target in statement.targets)
        if not rebound and isinstance(argument, ast.Name) and not _is_argument(script, statement, name) and is_read_later(script, statement, name):
            return f"`{name}`"
        if rebound or not _is_argument(script, statement, name):
            seen = is_seen_elsewhere(script, statement, argument)
            if seen and not seen.startswith("the caller"):
                return seen
    return ""


def _is_argument(script: Script, statement: ast.stmt, name: str) -> bool:
    scope = script.scope_of(statement)
    return isinstance(scope, Function) and name in {argument.arg for argument in scope.args.args} and not is_read_after(script, statement, name)


def is_read_after(script: Script, statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > (statement.end_lineno or statement.lineno)
        for node in script.own_nodes(script.scope_of(statement))
    )


# -- the save -------------------------------------------------------------------------------------


def _clones(scripts: Scripts, saves: list[StaleSave]) -> Fix | None:
    found = cloned_saves(scripts, saves)
    if found is None:
        return None
    edits, names = found
    words = ", ".join(f"`{short(name, 40)}`" for name in names[:3])
    return scripts.fix(f"Save a copy for backward: `.clone()` on {words}, where it is saved.", edits)


def _memory_copied(scripts: Scripts, evidence: Evidence, saves: list[StaleSave]) -> Fix | None:
    """A buffer that each round reads and then fills with what has a history: the next round would read that history too, and its
    backward go on into the graph of this one."""
    failed = backward_statement(scripts, evidence)
    if failed is None or not failed[0].loops_around(failed[1]):
        return None
    if not all(save.tensor.kind == "buffer" and save.tensor.requires_grad and save.version_saved == 0 and not save.is_result for save in saves):
        return None
    found = cloned_saves(scripts, saves, ".detach().clone()")
    words = ", ".join(f"`{short(name, 40)}`" for name in found[1][:3]) if found is not None else ""
    meaning = "No gradient goes back to the rounds before, whose graphs are gone by then."
    return scripts.fix(f"Read a copy without history: `.detach().clone()` on {words}.", found[0], meaning, safe=False) if found is not None else None


def _argument_copied(scripts: Scripts, failing: StaleSave, sites: list[WriteSite]) -> Fix | None:
    """The library writes into what it is given: give it a copy."""
    edits: list[Edit] = []
    for site in sites:
        via = site.place.via
        script = scripts.get(via)
        node = script.node_at(via.span) if script is not None else None
        if script is None or not isinstance(node, ast.Call) or not failing.tensor.name:
            return None
        arguments = [item for a in [*node.args, *(k.value for k in node.keywords)] for item in occurrences(script, a, failing.tensor.name)]
        if not arguments:
            return None
        for argument in arguments:
            edits += script.wrapped(argument, ".clone()")
    meaning = f"`{failing.tensor.name}` itself is then no longer changed by the call."
    return scripts.fix(f"Pass a copy: `{failing.tensor.name}.clone()`.", edits, meaning, safe=False)


# -- weights --------------------------------------------------------------------------------------


def _is_step(scripts: Scripts, site: WriteSite) -> bool:
    place = site.place.via or site.place
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    return isinstance(node, ast.Call) and called(node) in ("step", "minimize", "update_parameters")


def _statement(scripts: Scripts, place) -> tuple[Script, ast.stmt] | None:
    if place is not None and place.in_library:
        place = place.via
    script = scripts.get(place)
    statement = script.statement_at(place.span) if script is not None else None
    return (script, statement) if statement is not None else None


def backward_statement(scripts: Scripts, evidence: Evidence) -> tuple[Script, ast.stmt] | None:
    """The user's statement that was running when it failed."""
    frame = evidence.user_frame
    return _statement(scripts, frame.place) if frame is not None else None


def _around_step(scripts: Scripts, evidence: Evidence, saves: list[StaleSave], sites: list[WriteSite]) -> list[Fix | None]:
    failed = backward_statement(scripts, evidence)
    step = next((_statement(scripts, site.place.via or site.place) for site in sites if _is_step(scripts, site)), None)
    if failed is None or step is None:
        return []
    if failed[0] is not step[0] or failed[0].scope_of(failed[1]) is not step[0].scope_of(step[1]):
        return [_recomputed_outside(scripts, evidence, saves, *step)]
    script, backward, stepping = failed[0], failed[1], step[1]
    places = [_statement(scripts, save.place) for save in saves]
    statements = [found[1] for found in places if found is not None and found[0] is script]
    stale = frozenset(name for save in saves for item in save.carried for name in item.names)
    # What is stale alone, before all that leads to it: that may draw other random numbers.
    ways = [recomputed(script, statements, stepping, backward, names) for names in (stale, frozenset())]
    again = [way for n, way in enumerate(ways) if way is not None and way not in ways[:n]]
    fixes: list[Fix | None] = []
    for edits, lines in again:
        words = ", ".join(f"`{short(line, 40)}`" for line in lines[:2])
        fixes.append(
            scripts.fix(
                f"Run {words} again after `{short(script.segment(stepping), 40)}`.",
                edits,
                "The second loss is then computed with the updated weights, as alternating (GAN-style) training means it.",
                safe=False,
            )
        )
    moved = moved_after(script, stepping, backward)
    fixes.append(
        scripts.fix(
            f"Call `{short(script.segment(stepping), 40)}` after the last backward that needs the old weights.",
            moved,
            "Both losses are then taken at the old weights, and gradients that the second backward leaves in the same "
            "parameters count in this step too.",
            safe=False,
        )
    )
    if not again and moved is None:
        fixes.append(_recomputed_outside(scripts, evidence, saves, *step))
        loops = script.loops_around(backward)
        once = [s for s in statements if loops and s in script.block_of(loops[0]) and s.lineno < loops[0].lineno]
        fixes.append(computed_in_loop(scripts, script, backward, once[0]) if once else None)
        fixes.append(carried_over(scripts, script, backward))
    return fixes


def _recomputed_outside(scripts: Scripts, evidence: Evidence, saves: list[StaleSave], inner: Script, step: ast.stmt) -> Fix | None:
    """The step in one function, the failing backward in another: the forward pass again in the function that calls both."""
    found = split_over_functions(scripts, evidence.frames, inner, step)
    if found is None:
        return None
    script, early, running = found
    places = [_statement(scripts, save.place) for save in saves]
    again = recomputed(script, [place[1] for place in places if place is not None and place[0] is script], early, running)
    if again is None:
        return None
    words = ", ".join(f"`{short(line, 40)}`" for line in again[1][:2])
    return scripts.fix(
        f"Run {words} again after `{short(script.segment(early), 40)}`, which takes the step.",
        again[0],
        "The second loss is then computed with the updated weights, as alternating (GAN-style) training means it.",
        safe=False,
    )


def carried_over(scripts: Scripts, script: Script, backward: ast.stmt) -> Fix | None:
    """What the loop carries from one step into the next, cut after each backward."""
    loops = script.loops_around(backward)
    names = carried_names(script, loops[0], names_in(backward, ast.Load)) if loops else []
    if not names:
        return None
    return scripts.fix(
        f"Detach {', '.join(f'`{name}`' for name in names)} after each step's backward.",
        detached(script, names, backward),
        "Gradients then stop at the step boundary (truncated backpropagation through time).",
        safe=False,
    )


def _unrecorded_target(scripts: Scripts, saves: list[StaleSave]) -> Fix | None:
    """What no optimizer trains, computed under `no_grad`, where each such save is made by a plain assignment."""
    edits: list[Edit] = []
    done: set[ast.stmt] = set()
    for save in saves:
        found = _statement(scripts, save.place)
        torch = found[0].module_name("torch") if found is not None else None
        if found is None or torch is None or not save.untrained:
            return None
        script, statement = found
        if not isinstance(statement, ast.Assign) or not script.is_alone_on_line(statement):
            return None
        if statement not in done:
            done.add(statement)
            edits += script.inside(f"with {torch}.no_grad():", statement, statement) or []
    if not edits:
        return None
    meaning = "No gradient goes back from there, to weights that no optimizer in sight holds."
    return scripts.fix(f"Compute `{short(scripts.get(saves[0].place).segment(next(iter(done))), 40)}` under `no_grad`.", edits, meaning, safe=False)


def _weights_after_backward(scripts: Scripts, evidence: Evidence, sites: list[WriteSite]) -> Fix | None:
    """Weights changed by hand between forward and backward: change them after it."""
    failed = backward_statement(scripts, evidence)
    written = _statement(scripts, sites[0].place) if sites else None
    found = put_after(*failed, *written) if failed is not None and written is not None else None
    if found is None:
        return None
    meaning = "What stands in between then sees the old weights." if found[1] else ""
    return scripts.fix("Change the weights after `backward()`, which needs the old ones.", found[0], meaning, safe=not meaning)
