"""Where the gradient was lost, by the source alone: the operation log was no longer watching.

The statements that feed the loss say by themselves what cuts; and so do lines that ran in the failing round for the first time.
"""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.syntax import feeding_statements, node_at, switches_grad_off
from torchsleuth.capture.trained import trained_parameters
from torchsleuth.evidence import GradientCut
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_FEWEST_ROUNDS = 8  # that went well, before what is new in the last one says anything
_CUTTING_CALLS = {
    "detach": "detach", "item": "python", "tolist": "python", "numpy": "python", "tensor": "copy", "argmax": "integer",
    "argmin": "integer", "argsort": "integer", "long": "integer", "int": "integer", "bool": "integer",
}  # fmt: skip


def cuts_by_syntax(crash: Crash) -> list[GradientCut]:
    """The log was no longer watching: what the statements that feed the loss, in the same function, say by themselves."""
    entry = crash.user_entry()
    if entry is None:
        return []
    frame, lasti = entry
    code = frame.f_code
    call = node_at(code, lasti)
    if not isinstance(call, ast.Call):
        return []
    own = source.statement_at(code.co_filename, call.lineno)
    cuts: list[tuple[GradientCut, ast.stmt]] = []
    for statement in [*feeding_statements(code, call, call.lineno), own]:
        if statement is None:
            continue
        wrapper = source_of_wrapper(code, statement)
        for node in ast.walk(statement):
            reason = _cutting(node)
            if reason is not None:
                place = source.place_of_node(code, node, Known.INFERRED)
                if place is not None:
                    name = called_name(node) if isinstance(node, ast.Call) else node.attr
                    cuts.append((GradientCut(name, reason, place, None), statement))
        if wrapper is not None and all(cut.wrapper is None for cut, _ in cuts):
            place = source.place_of_node(code, statement, Known.INFERRED)
            if place is not None:
                cuts.append((GradientCut("", "no_grad", place, None, source.place_of_node(code, wrapper, Known.INFERRED)), statement))
    meant = _new_lines(crash, frame, call.lineno) or _parting(crash, code, cuts)
    # A constructor that is fed bare numbers is no second cut, and a block without recording only where nothing else cuts.
    handed = any(cut.reason == "python" for cut in meant)
    if any(cut.reason != "no_grad" for cut in meant):
        meant = [cut for cut in meant if cut.reason != "no_grad"]
    return [cut for cut in meant if cut.reason != "copy"] if handed else meant


def _new_lines(crash: Crash, frame: types.FrameType, line: int) -> list[GradientCut]:
    """What cuts on lines that ran in the failing round and in none of the rounds before, which went well: what is new is to blame."""
    rounds: list[dict[tuple[int, int], types.CodeType]] = [{}]
    for event in crash.timeline.events():
        if event.kind is not Kind.LINE or origin_of(event.code) is not Origin.USER:
            continue
        if event.code is frame.f_code and event.where == line:
            rounds.append({})
        else:
            rounds[-1][(id(event.code), event.where)] = event.code
    rounds = rounds[:-1]  # after the failing call nothing ran
    if len(rounds) <= _FEWEST_ROUNDS:
        return []
    usual = {key for one in rounds[:-1] for key in one}
    cuts = []
    for (_, where), code in ((key, code) for key, code in rounds[-1].items() if key not in usual):
        statement = source.statement_at(code.co_filename, where)
        if statement is None or hasattr(statement, "body"):
            continue
        wrapper = source_of_wrapper(code, statement)
        for node in ast.walk(statement):
            reason = _cutting(node)
            place = source.place_of_node(code, node, Known.INFERRED) if reason is not None else None
            if place is not None:
                cuts.append(GradientCut(called_name(node) if isinstance(node, ast.Call) else node.attr, reason, place, None, is_new=True))
        place = source.place_of_node(code, statement, Known.INFERRED) if wrapper is not None else None
        if place is not None:
            cuts.append(GradientCut("", "no_grad", place, None, source.place_of_node(code, wrapper, Known.INFERRED), is_new=True))
    return cuts


def _parting(crash: Crash, code: types.CodeType, cuts: list[tuple[GradientCut, ast.stmt]]) -> list[GradientCut]:
    """Without those that only cut off a module which no optimizer in sight trains: a teacher, a target network."""
    trained, kept = trained_parameters(crash), []
    for cut, statement in cuts:
        owners = [
            module
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
            for module in values_of(crash, code, node.func)
            if isinstance(module, torch.nn.Module) and any(True for _ in module.parameters())
        ]
        if trained and owners and not any(id(p) in trained for module in owners for p in module.parameters()):
            continue
        kept.append(cut)
    return kept


def _cutting(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        reason = _CUTTING_CALLS.get(called_name(node))
        made_of_literals = not any(isinstance(inner, ast.Name) for argument in node.args for inner in ast.walk(argument))
        return None if reason == "copy" and made_of_literals else reason
    if isinstance(node, ast.Attribute) and node.attr in ("data", "indices") and isinstance(node.ctx, ast.Load):
        return "detach" if node.attr == "data" else "integer"
    return None


def source_of_wrapper(code: types.CodeType, statement: ast.stmt) -> ast.AST | None:
    """The `no_grad` block around a statement of this code."""
    tree = source.tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.body[0].lineno <= statement.lineno <= (node.end_lineno or 0):
            found = next((item.context_expr for item in node.items if switches_grad_off(item.context_expr)), None)
            if found is not None:
                return found
    return None
