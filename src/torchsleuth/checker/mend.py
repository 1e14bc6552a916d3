"""Trying one-step changes of `backward` (and of what `forward` saves) until the gradient comes out right.

Nothing is written: a changed method is compiled in memory and called with the contexts and
grad_outputs of the experiments. A change counts only if it is right in all of them, over other sizes
and other grad_outputs, and spoils no gradient that was right before.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import re
import sys
import typing

import torch

from torchsleuth.checker import edits, slices, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation
from torchsleuth.checker.cases import Case, experiments, finite_at_zero, passes, right_already, seen_first
from torchsleuth.checker.change import Change, Scope, applied, bracketed, mend_of
from torchsleuth.checker.compiling import Compiler, from_text, visible_names
from torchsleuth.checker.saved import saved_otherwise
from torchsleuth.checker.source import Method, method_of, own_nodes, returned_expression
from torchsleuth.checker.trial import Mend

LIMIT = 4000  # changes tried where nothing is known about the slip; a quarter of that where the relation is
FURTHER = 1200
LIMITS = {"": LIMIT, "unknown": LIMIT, "not-linear": LIMIT // 2, "missing-term": LIMIT // 2, "condition": LIMIT // 2, "count": 60}


def mended(
    bench: Bench, method: Method, evaluation: Evaluation, k: int, study: Arguments, relation: str = "", known: typing.Sequence[Mend] = (),
    again: bool = False, seen: Evaluation | None = None,
) -> Mend | None:
    """The first change that puts gradient `k` (or, for -1, all of them) right in every experiment.

    `known` are changes that put another gradient of the same Function right: one slip may spoil several. `again`:
    a change was looked for in vain already, and now it is not looked for as long. `seen` is the pass that showed the mistake,
    where `evaluation` is one that shows it better.
    A method with a `while` loop is left alone: with a changed step it might never end. What backward
    prints, it has printed already.
    """
    if any(isinstance(node, ast.While) for node in ast.walk(method.tree)):
        return None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        limit = LIMITS.get(relation, LIMIT // 4)
        return _mended(bench, method, evaluation, k, study, relation, known, limit // 8 if again else limit, seen)


def _mended(
    bench: Bench, method: Method, evaluation: Evaluation, k: int, study: Arguments, relation: str, known: typing.Sequence[Mend], limit: int,
    seen: Evaluation | None = None,
) -> Mend | None:
    if variants.elements(evaluation.arguments) > 16 * variants.LARGE:
        evaluation = bench.evaluate(study)
    try:
        cases = experiments(bench, method, evaluation)
        if not cases:
            return None
        cases = [*cases, *seen_first(bench, seen)] if seen is not None and seen is not evaluation else cases
        right = right_already(bench, cases)
        scope = _scope(bench, method, cases[0])
    except Exception:
        return None
    wanted = {k} if k in cases[0].true else set(cases[0].true)
    for mend in known:
        if mend.culprit.function == method.name:
            again = from_text(bench.subject.backward_code, method, patched(method, mend))
            if again is not None and passes(bench, cases, wanted, right, again):
                return mend
        elif saved_otherwise(bench, cases, wanted, right, only=mend.after):
            return mend
    count = len(evaluation.arguments.values)
    first = returned_expression(method, max(k, 0), count)
    wrong = sorted(set(cases[0].true) - right)
    doubtful = [slices.made_of(s) if isinstance(s, ast.For) else s for s in slices.suspicious(method, wrong, sorted(right), count).values()]
    done: set[str] = set()
    partial: Mend | None = None
    compiler = Compiler(bench.subject.backward_code, method)
    for tried, change in enumerate(edits.changes(method, scope, first, relation, doubtful)):
        if tried > limit:
            break
        text = applied(method, change)
        if text in done:
            continue
        done.add(text)
        backward = compiler.compiled(change)
        if backward is None or not passes(bench, cases, wanted, right, backward):
            continue
        if change.after.count("/") > method.segment(change.node).count("/") and not finite_at_zero(bench, cases[0], wanted, backward):
            continue
        earlier = _where_defined(method, change)
        if earlier is not None and (other := compiler.compiled(earlier)) is not None and passes(bench, cases, wanted, right, other):
            change, text, backward = earlier, applied(method, earlier), other
        found = mend_of(method, change, text, len(cases))
        if wanted.issuperset(wrong) or passes(bench, cases, set(wrong), right, backward):
            return found
        if partial is None:
            # One slip may spoil several gradients: a change that mends them all is better, and looked for a little longer.
            partial, limit = found, min(limit, tried + FURTHER)
    return partial or saved_otherwise(bench, cases, wanted, right)


def _where_defined(method: Method, change: Change) -> Change | None:
    """A change of a part that is only put together with others, made where it gets its value: `da = dy * cdf`, not `torch.cat([da, db])`."""
    name = change.node
    together = (e for n in own_nodes(method.tree) if isinstance(n, (ast.List, ast.Tuple)) and isinstance(n.ctx, ast.Load) for e in n.elts)
    if not isinstance(name, ast.Name) or not any(e is name for e in together):
        return None
    uses = [n for n in own_nodes(method.tree) if isinstance(n, ast.Name) and n.id == name.id]
    values = [n.value for n in own_nodes(method.tree) if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name) and n.targets[0].id == name.id]
    if len(uses) != 2 or len(values) != 1 or not isinstance(values[0], (ast.BinOp, ast.Call)):
        return None
    after, found = re.subn(rf"(?<![\w.]){re.escape(name.id)}(?!\w)", lambda _: bracketed(method, values[0]), change.after)
    return Change(values[0], after, True) if found == 1 else None


def in_other_places(bench: Bench, method: Method, evaluation: Evaluation, node: ast.AST, places: dict[int, int]) -> Mend | None:
    """The returned gradients put where they belong: `places` says where each of them is now."""
    value = node.value if isinstance(node, ast.Return) else node
    if not isinstance(value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in value.elts) or max(places.values()) >= len(value.elts):
        return None
    parts = [method.segment(value.elts[places[k]]) if k in places else "None" for k in range(len(evaluation.arguments.values))]
    change = Change(value, ", ".join(parts), True)
    try:
        cases = experiments(bench, method, evaluation)
        backward = Compiler(bench.subject.backward_code, method).compiled(change)
    except Exception:
        return None
    if not cases or backward is None or not passes(bench, cases, set(cases[0].true), set(), backward):
        return None
    return mend_of(method, change, applied(method, change), len(cases))


def patched(method: Method, mend: Mend) -> str:
    starts = [0]
    for line in method.text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    span = mend.edit.span
    start, end = starts[span.line - 1] + span.column - 1, starts[span.end_line - 1] + span.end_column - 1
    return method.text[:start] + mend.after + method.text[end:]


def _scope(bench: Bench, method: Method, case: Case) -> Scope:
    """What the names in backward stand for, seen at the end of a run of it."""
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
    # NumPy's arrays count as tensors: the same changes make sense for them.
    tensors = {n: v.ndim for n, v in values.items() if isinstance(v, torch.Tensor) or type(v).__name__ == "ndarray"}
    sizes = {n: len(v) for n, v in values.items() if isinstance(v, torch.Size)}
    numbers = tuple(n for n, v in values.items() if isinstance(v, (int, float)) and not isinstance(v, bool))
    one_of_each = {v.shape: n for n, v in reversed(values.items()) if isinstance(v, torch.Tensor)}
    shapes = {n: len(shape) for shape, n in one_of_each.items()}
    forward = method_of(bench.subject.forward_code, "forward")
    found_in = own_nodes(forward.tree) if forward is not None else ()
    constants = tuple(dict.fromkeys(n.value for n in found_in if isinstance(n, ast.Constant) and isinstance(n.value, float)))
    masks = frozenset(n for n, v in values.items() if isinstance(v, torch.Tensor) and v.dtype is torch.bool)
    return Scope(
        tensors, sizes, numbers, _donors(method, forward), shapes, constants, _saved(bench), masks,
        _formulas(forward, values, context, bench.subject.backward_code), _options(method, forward, values, context),
    )  # fmt: skip


def _saved(bench: Bench) -> tuple[str, ...]:
    subject = bench.subject
    method = method_of(subject.function.setup_context if subject.separate else subject.forward_code, "")
    for node in own_nodes(method.tree) if method is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "save_for_backward":
            return tuple(a.id for a in node.args) if all(isinstance(a, ast.Name) for a in node.args) else ()
    return ()


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


def _formulas(forward: Method | None, values: dict[str, typing.Any], context: str, backward: typing.Any) -> tuple[tuple[str, frozenset[str]], ...]:
    """Forward's expressions that can be written in backward as well: arguments kept on ctx go by their name there."""
    found: dict[str, frozenset[str]] = {}
    visible = {context, *values, *visible_names(backward), *vars(builtins)}
    for node in own_nodes(forward.tree) if forward is not None else ():
        if not isinstance(node, (ast.Call, ast.BinOp)):
            continue
        tree = _Renamed(values, context).visit(ast.parse(ast.unparse(node), mode="eval").body)
        if all(part.id in visible for part in ast.walk(tree) if isinstance(part, ast.Name)):
            text = ast.unparse(tree)
            if len(text) <= 80:
                found[text] = frozenset(ast.unparse(part) for part in ast.walk(tree) if part is not tree and isinstance(part, ast.expr))
    return tuple(found.items())


def _options(backward: Method, forward: Method | None, values: dict[str, typing.Any], context: str) -> tuple[str, ...]:
    """Keyword arguments of calls that hand on what the Function was given or kept."""
    found: dict[str, None] = {}
    for node in (*own_nodes(backward.tree), *(own_nodes(forward.tree) if forward is not None else ())):
        if isinstance(node, ast.keyword) and isinstance(node.value, (ast.Name, ast.Attribute)) and node.arg not in (None, "dtype", "device", "dim", "keepdim"):
            value = ast.unparse(_Renamed(values, context).visit(ast.parse(ast.unparse(node.value), mode="eval").body))
            if value in values:
                found[f"{node.arg}={value}"] = None
    return tuple(found)


class _Renamed(ast.NodeTransformer):
    """`eps` as `ctx.eps`, where backward has only that."""

    def __init__(self, values: dict[str, typing.Any], context: str):
        self.values, self.context = values, context

    def visit_Name(self, node: ast.Name) -> ast.expr:
        kept = f"{self.context}.{node.id}"
        return ast.parse(kept, mode="eval").body if node.id not in self.values and kept in self.values else node
