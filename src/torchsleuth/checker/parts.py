"""Terms of backward's own formula that are too large, too small, of the wrong sign, or not to be there at all.

A term is a summand in the source. Its share of the returned gradient is found by running backward with the
summand doubled and with it left out; a term is wrong where that share, times one number, is what the gradient lacks
in every experiment.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import typing

import torch

from torchsleuth.checker import slices
from torchsleuth.checker.bench import Bench, Evaluation, settle
from torchsleuth.checker.cases import Case, experiments
from torchsleuth.checker.change import Change
from torchsleuth.checker.compiling import Compiler
from torchsleuth.checker.source import Method, followed, returned_expression
from torchsleuth.checker.trial import Relation
from torchsleuth.checker.truth import differing

LIMIT = 40  # terms looked at
# Methods that put their last argument into a tensor.
WRITING = frozenset("index_put index_add index_copy scatter scatter_add masked_scatter select_scatter slice_scatter".split())


def scaled_part(bench: Bench, method: Method, evaluation: Evaluation, k: int, lines: frozenset[int] | None) -> tuple[Relation, ast.expr] | None:
    """The term that is wrong by a number, as a relation, and its place."""
    if any(isinstance(node, ast.While) for node in ast.walk(method.tree)):
        return None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cases = experiments(bench, method, evaluation)
        if not cases or k not in cases[0].true:
            return None
        compiler = Compiler(bench.subject.backward_code, method)
        here = [_gradient(bench, case, bench.subject.method, k) for case in cases]
        if any(g is None for g in here):
            return None
        for term in list(_terms(method, k, len(evaluation.arguments.values), lines))[:LIMIT]:
            times = _times(bench, method, compiler, cases, here, term, k)
            if times is not None:
                return Relation("scaled-part", tensor=method.segment(term), factor=times, line=term.lineno), term
    return None


def piece_of(
    bench: Bench, method: Method, evaluation: Evaluation, k: int, lines: frozenset[int] | None, whole: bool = True
) -> ast.expr | None:
    """Of a gradient that is put together from pieces, the one that is wrong: what is made without it differs in wrong elements only, and all of them.

    Not `whole`: the one piece that reaches all wrong elements, and it may reach others.
    """
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cases = experiments(bench, method, evaluation)
        if not cases or k not in cases[0].true or any(isinstance(node, ast.While) for node in ast.walk(method.tree)):
            return None
        here = _gradient(bench, cases[0], bench.subject.method, k)
        if here is None:
            return None
        wrong = differing(here, cases[0].true[k])
        compiler = Compiler(bench.subject.backward_code, method)
        found = []
        for piece in itertools.islice(_pieces(method, k, len(evaluation.arguments.values), lines), LIMIT):
            without = compiler.compiled(Change(piece, f"({method.segment(piece)}) * 0"))
            less = _gradient(bench, cases[0], without, k) if without is not None else None
            if less is None or less.shape != here.shape:
                continue
            changed = less != here
            if not bool(changed.any()) or whole and bool((changed & ~wrong).any()):
                continue
            if not bool((wrong & ~changed & (here != 0)).any()):
                found.append(piece)
    if len(found) != 1 or not whole and bool(wrong.all()):
        return None
    return followed(method, found[0], lines)


def _pieces(method: Method, k: int, count: int, lines: frozenset[int] | None) -> typing.Iterator[ast.expr]:
    """The elements of lists that a gradient is joined from, and the values written into parts of it."""
    expression = returned_expression(method, k, count, lines, follow=False)
    if expression is None:
        return
    statements = list(slices.comes_from(method, expression, lines).values())
    for tree in (expression, *map(slices.made_of, statements)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr.rstrip("_") in WRITING and len(node.args) > 1:
                    yield node.args[-1]
                    continue
                for argument in node.args:
                    if isinstance(argument, (ast.List, ast.Tuple)):
                        yield from (e for e in argument.elts if not isinstance(e, (ast.Constant, ast.Starred)))
    for statement in statements:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            yield statement.value


def _terms(method: Method, k: int, count: int, lines: frozenset[int] | None) -> typing.Iterator[ast.expr]:
    """The summands of what gradient k comes from, the last statement first, whole terms before those inside them."""
    expression = returned_expression(method, k, count, lines, follow=False)
    if expression is None:
        return
    statements = sorted(slices.comes_from(method, expression, lines).values(), key=lambda s: -s.lineno)
    for tree in (expression, *map(slices.made_of, statements)):
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
                for side in (node.right, node.left):
                    if not isinstance(side, ast.Constant) and not (isinstance(side, ast.BinOp) and isinstance(side.op, (ast.Add, ast.Sub))):
                        yield side


def _times(bench: Bench, method: Method, compiler: Compiler, cases: list[Case], here: list, term: ast.expr, k: int) -> float | None:
    """The number the term has to be multiplied by, the same in all experiments; None where there is none."""
    doubled, without = (compiler.compiled(Change(term, f"({method.segment(term)}) * {n}")) for n in (2, 0))
    if doubled is None or without is None:
        return None
    found: list[float] = []
    for case, returned in zip(cases, here, strict=True):
        more, less = _gradient(bench, case, doubled, k), _gradient(bench, case, without, k)
        if more is None or less is None or more.shape != less.shape:
            return None
        share = returned - less
        square = float((share * share).sum())
        if not square > 1e-20 or bool(differing(more - returned, share).any()):
            return None
        lacking = case.true[k] - returned
        times = float((lacking * share).sum()) / square
        if bool(differing(returned + times * share, case.true[k]).any()) or any(abs(times - other) > 1e-6 * (1 + abs(other)) for other in found):
            return None
        found.append(times)
    return 1 + found[0]


def _gradient(bench: Bench, case: Case, function: typing.Callable, k: int) -> torch.Tensor | None:
    try:
        with torch.no_grad():
            raw = function(case.run.context, list(case.grads)) if bench.subject.boxed else function(case.run.context, *case.grads)
        settled, _ = settle(case.arguments, raw if isinstance(raw, tuple) else (raw,), case.arguments.needs)
    except Exception:
        return None
    found = settled.get(k)
    return None if found is None else found.double()
