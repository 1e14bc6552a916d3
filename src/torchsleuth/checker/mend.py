"""Trying one-step changes of `backward` (and of what `forward` saves) until the gradient comes out right.

Nothing is written: a changed method is compiled in memory and called with the contexts and
grad_outputs of the experiments. A change counts only if it is right in all of them, over other sizes
and other grad_outputs, and spoils no gradient that was right before.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import textwrap
import typing

import torch

from torchsleuth.checker import edits, slices, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, finite, settle
from torchsleuth.checker.edits import Change, Scope
from torchsleuth.checker.mechanics import Watch
from torchsleuth.checker.source import Method, culprit_of, digest, method_of, own_nodes, returned_expression, shown_file, span_of
from torchsleuth.checker.subject import Run
from torchsleuth.checker.trial import Mend
from torchsleuth.checker.truth import differing, true_gradient
from torchsleuth.model import Edit, Known, Role, unified_diff

LIMIT = 4000  # changes tried where nothing is known about the slip; a quarter of that where the relation is
FURTHER = 300
LIMITS = {"": LIMIT, "unknown": LIMIT, "not-linear": LIMIT // 2, "missing-term": LIMIT // 2, "condition": LIMIT // 2, "count": 60}


class Case(typing.NamedTuple):
    """One experiment to pass: inputs, grads, and the true gradients by input."""

    arguments: Arguments
    run: Run
    grads: tuple
    true: dict[int, torch.Tensor]


def mended(
    bench: Bench, method: Method, evaluation: Evaluation, k: int, study: Arguments, relation: str = "", known: typing.Sequence[Mend] = (),
    again: bool = False,
) -> Mend | None:
    """The first change that puts gradient `k` (or, for -1, all of them) right in every experiment.

    `known` are changes that put another gradient of the same Function right: one slip may spoil several. `again`:
    a change was looked for in vain already, and now it is not looked for as long.
    A method with a `while` loop is left alone: with a changed step it might never end. What backward
    prints, it has printed already.
    """
    if any(isinstance(node, ast.While) for node in ast.walk(method.tree)):
        return None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        limit = LIMITS.get(relation, LIMIT // 4)
        return _mended(bench, method, evaluation, k, study, relation, known, limit // 8 if again else limit)


def _mended(
    bench: Bench, method: Method, evaluation: Evaluation, k: int, study: Arguments, relation: str, known: typing.Sequence[Mend], limit: int
) -> Mend | None:
    if variants.elements(evaluation.arguments) > 16 * variants.LARGE:
        evaluation = bench.evaluate(study)
    try:
        cases = experiments(bench, method, evaluation)
        if not cases:
            return None
        right = _right_already(bench, cases)
        scope = _scope(bench, method, cases[0])
    except Exception:
        return None
    wanted = {k} if k in cases[0].true else set(cases[0].true)
    for mend in known:
        if mend.culprit.function == method.name:
            again = _from_text(bench.subject.backward_code, method, _patched(method, mend))
            if again is not None and _passes(bench, cases, wanted, right, again):
                return mend
        elif _saved_otherwise(bench, cases, wanted, right, only=mend.after):
            return mend
    count = len(evaluation.arguments.values)
    first = returned_expression(method, max(k, 0), count)
    wrong = sorted(set(cases[0].true) - right)
    doubtful = [slices.made_of(s) if isinstance(s, ast.For) else s for s in slices.suspicious(method, wrong, sorted(right), count).values()]
    seen: set[str] = set()
    partial: Mend | None = None
    compiler = Compiler(bench.subject.backward_code, method)
    for tried, change in enumerate(edits.changes(method, scope, first, relation, doubtful)):
        if tried > limit:
            break
        text = edits.applied(method, change)
        if text in seen:
            continue
        seen.add(text)
        backward = compiler.compiled(change)
        if backward is None or not _passes(bench, cases, wanted, right, backward):
            continue
        found = _result(method, change, text, len(cases))
        if wanted.issuperset(wrong) or _passes(bench, cases, set(wrong), right, backward):
            return found
        if partial is None:
            # One slip may spoil several gradients: a change that mends them all is better, and looked for a little longer.
            partial, limit = found, min(limit, tried + FURTHER)
    return partial or _saved_otherwise(bench, cases, wanted, right)


def experiments(bench: Bench, method: Method, evaluation: Evaluation) -> list[Case]:
    """What a changed method is tried on; nothing where that could do harm, or cannot be done twice."""
    arguments = evaluation.arguments
    if any(v.device.type != "cpu" for v in arguments.values if isinstance(v, torch.Tensor)):
        return []  # a changed index on a GPU may end the CUDA context
    if bench.experiments is None or bench.experiments[0] is not evaluation:
        try:
            cases = _cases(bench, evaluation)
        except Exception:
            cases = []
        bench.experiments = evaluation, cases if cases and not _writes(bench, cases[0]) else []
    return bench.experiments[1]


def _patched(method: Method, mend: Mend) -> str:
    starts = [0]
    for line in method.text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    span = mend.edit.span
    start, end = starts[span.line - 1] + span.column - 1, starts[span.end_line - 1] + span.end_column - 1
    return method.text[:start] + mend.after + method.text[end:]


def _cases(bench: Bench, evaluation: Evaluation) -> list[Case]:
    arguments = evaluation.arguments
    others = [arguments, arguments, variants.redrawn(arguments, bench.generator), variants.moved(arguments, bench.generator)]
    sizes = sorted({n for j in variants.tensors(arguments) for n in arguments.values[j].shape if n > 0})
    others += [variants.with_sizes(arguments, {n: n + 1}, bench.generator) for n in sizes[:4]]
    others += [other for _, other in variants.other_constants(arguments)]
    out = []
    for position, other in enumerate(other for other in others if other is not None):
        try:
            run = bench.forward(other)
            if position and not finite(run):
                continue
            grads = evaluation.grads if position == 0 else bench.random_grads(run)
            again = evaluation._replace(arguments=other, run=run, grads=grads)
            true = {}
            for k in arguments.checked:
                found, _ = true_gradient(bench, again, k)
                if found is None:
                    break
                true[k] = found.gradient
            else:
                out.append(Case(other, run, _passed(run, grads), true))
        except Exception:
            if position == 0:
                return []
    return out


def _passed(run: Run, grads: tuple) -> tuple:
    return tuple(
        torch.zeros_like(o) if g is None and isinstance(o, torch.Tensor) and run.context.materialize_grads else g
        for g, o in zip(grads, run.outputs, strict=True)
    )


def _writes(bench: Bench, case: Case) -> bool:
    """A backward that writes into what it is given cannot be run twice on it."""
    watches = [Watch(case.grads), Watch(case.run.context.to_save or ()), Watch(case.arguments.values)]
    try:
        with torch.no_grad():
            bench.subject.backward(case.run.context, case.grads)
    except Exception:
        pass
    return any(watch.written() for watch in watches)


def _right_already(bench: Bench, cases: list[Case]) -> set[int]:
    def right(k: int) -> bool:
        return all(_right(bench, case, bench.subject.backward, {k}) for case in cases)

    return {k for k in cases[0].true if right(k)}


def _right(bench: Bench, case: Case, backward: typing.Callable, wanted: set[int]) -> bool:
    try:
        with torch.no_grad():
            raw = backward(case.run.context, case.grads)
        raw = raw if isinstance(raw, tuple) else (raw,)
        settled, problems = settle(case.arguments, raw, case.arguments.needs)
    except Exception:
        return False
    if any(p.kind == "count" or p.kind == "unexpected" or p.input in wanted for p in problems if p.kind != "none"):
        return False
    for k in wanted:
        grad = settled.get(k)
        if grad is None:
            if bool((case.true[k] != 0).any()):
                return False
        elif bool(differing(grad, case.true[k]).any()):
            return False
    return True


def _passes(bench: Bench, cases: list[Case], wanted: set[int], right: set[int], function: typing.Callable) -> bool:
    def backward(context, grads):
        return function(context, list(grads)) if bench.subject.boxed else function(context, *grads)

    return all(_right(bench, case, backward, wanted | right) for case in cases)


class Compiler:
    """Compiles changed copies of one method, bound to the names the original sees.

    An expression is exchanged in the method's syntax tree, which takes half as long as parsing the text
    again; the tree is put back at once.
    """

    def __init__(self, function: typing.Any, method: Method):
        self.function, self.method = function, method
        self.names = _visible_names(function)
        self.parents = {
            id(child): (parent, field, position)
            for parent in ast.walk(method.tree)
            for field, value in ast.iter_fields(parent)
            for position, child in (enumerate(value) if isinstance(value, list) else [(None, value)])
            if isinstance(child, ast.AST)
        }

    def compiled(self, change: Change) -> typing.Callable | None:
        node = change.node
        if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), ast.Store) or id(node) not in self.parents:
            return _from_text(self.function, self.method, edits.applied(self.method, change))
        try:
            new = ast.parse(change.after, mode="eval").body
        except SyntaxError:
            return None
        parent, field, position = self.parents[id(node)]
        tree = self.method.tree
        decorators, tree.decorator_list = tree.decorator_list, []
        self._put(parent, field, position, new)
        try:
            code = compile(ast.Module([tree], []), self.method.file, "exec")
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            self._put(parent, field, position, node)
            tree.decorator_list = decorators
        return _defined(code, dict(self.names), tree.name)

    @staticmethod
    def _put(parent: ast.AST, field: str, position: int | None, node: ast.AST) -> None:
        if position is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[position] = node


def _from_text(function: typing.Any, method: Method, text: str) -> typing.Callable | None:
    """The method as it reads in a changed file."""
    start, end = method.offsets(method.tree)
    body = " " * method.tree.col_offset + text[start : end + len(text) - len(method.text)]
    try:
        code = compile(textwrap.dedent(body), method.file, "exec")
    except (SyntaxError, ValueError):
        return None
    return _defined(code, _visible_names(function), method.tree.name)


def _visible_names(function: typing.Any) -> dict[str, typing.Any]:
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    return names


def _defined(code: typing.Any, names: dict[str, typing.Any], name: str) -> typing.Callable | None:
    try:
        exec(code, names)
    except Exception:
        return None
    return names.get(name)


def _scope(bench: Bench, method: Method, case: Case) -> Scope:
    """What the names in backward stand for, seen at the end of a run of it."""
    import sys

    code = bench.subject.backward_code.__code__
    found: dict[str, typing.Any] = {}

    def local(frame, event, argument):
        found.update(frame.f_locals)
        return local

    def trace(frame, event, argument):
        return local(frame, event, argument) if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with torch.no_grad():
            bench.subject.backward(case.run.context, case.grads)
    except Exception:
        pass
    finally:
        sys.settrace(before)
    parameters = [a.arg for a in method.tree.args.args]
    context = parameters[0] if parameters else "ctx"
    values = {name: value for name, value in found.items() if name != context}
    for node in own_nodes(method.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == context:
            values.setdefault(f"{context}.{node.attr}", getattr(case.run.context, node.attr, None))
    for name, value in vars(case.run.context).items():
        if name not in ("_needs", "_asked", "to_save", "dirty_tensors", "non_differentiable", "materialize_grads"):
            values.setdefault(f"{context}.{name}", value)
    tensors = {n: v.ndim for n, v in values.items() if isinstance(v, torch.Tensor)}
    sizes = {n: len(v) for n, v in values.items() if isinstance(v, torch.Size)}
    numbers = tuple(n for n, v in values.items() if isinstance(v, (int, float)) and not isinstance(v, bool))
    one_of_each = {v.shape: n for n, v in reversed(values.items()) if isinstance(v, torch.Tensor)}
    shapes = {n: len(shape) for shape, n in one_of_each.items()}
    return Scope(tensors, sizes, numbers, _donors(method, method_of(bench.subject.forward_code, "forward")), shapes)


def _donors(*methods: Method | None) -> tuple[str, ...]:
    """Expressions of constants only, such as `math.sqrt(2)`."""
    found = []
    for method in methods:
        for node in own_nodes(method.tree) if method is not None else ():
            if isinstance(node, (ast.Call, ast.BinOp)):
                names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                if names and names <= {"math", "np", "numpy"}:
                    found.append(method.segment(node))
    return tuple(dict.fromkeys(found))


def _result(method: Method, change: Change, text: str, experiments: int) -> Mend:
    culprit = culprit_of(method, change.node, "", Role.RETURN_GRAD, Known.RECOMPUTED)
    before, after, node = method.segment(change.node), edits.replacement(change, method), change.node
    # `2` should be `3` says little: the expression around it is shown, as long as it is short and on one line.
    while len(before) < 6:
        around = next((n for n in ast.walk(method.tree) if isinstance(n, ast.expr) and any(c is node for c in ast.iter_child_nodes(n))), None)
        if not isinstance(around, (ast.BinOp, ast.Call, ast.Subscript, ast.Compare, ast.UnaryOp, ast.Attribute)):
            break
        if around.lineno != around.end_lineno or len(method.segment(around)) > 40:
            break
        start, whole = method.offsets(node)[0] - method.offsets(around)[0], method.segment(around)
        before, after, node = whole, whole[:start] + after + whole[start + len(before) :], around
    edit = Edit(span_of(method, node), after, digest(method.text))
    return Mend(culprit, before, after, edit, unified_diff(shown_file(method.file), method.text, text), experiments)


# -- what forward saves --------------------------------------------------------------------------


def _saved_otherwise(bench: Bench, cases: list[Case], wanted: set[int], right: set[int], only: str = "") -> Mend | None:
    """backward may be right and what forward saved for it wrong."""
    subject = bench.subject
    function = subject.function.setup_context if subject.separate else subject.forward_code
    method = method_of(function, f"{subject.name}.{'setup_context' if subject.separate else 'forward'}")
    if method is None:
        return None
    names = _assigned_names(method, subject.separate)
    for count, change in enumerate(edits.saved_changes(method, names)):
        if count > LIMIT // 8:
            break
        if only and edits.replacement(change, method) != only:
            continue
        text = edits.applied(method, change)
        changed = _from_text(function, method, text)
        if changed is None:
            continue
        if all(_right_with(bench, case, changed, wanted | right) for case in cases):
            result = _result(method, change, text, len(cases))
            return dataclasses.replace(result, culprit=dataclasses.replace(result.culprit, role=Role.SAVE))
    return None


def _right_with(bench: Bench, case: Case, changed: typing.Callable, wanted: set[int]) -> bool:
    from torchsleuth.checker.randomness import restore_random
    from torchsleuth.checker.subject import Context

    subject = bench.subject
    context = Context(case.arguments.needs)
    values = tuple(v.clone() if isinstance(v, torch.Tensor) and bench.writes else v for v in case.arguments.values)
    if bench.random:
        restore_random(bench.state)
    try:
        with torch.no_grad():
            if subject.separate:
                changed(context, values, case.run.returned)
            else:
                changed(context, *values)
    except Exception:
        return False
    again = case._replace(run=case.run._replace(context=context))
    return _right(bench, again, subject.backward, wanted)


def _assigned_names(method: Method, separate: bool) -> list[str]:
    """Names that can be saved: parameters and what is assigned."""
    out = [a.arg for a in method.tree.args.args[(0 if separate else 1) :]]
    for node in own_nodes(method.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            out.append(node.id)
    return list(dict.fromkeys(out))
