"""Double backward: is the derivative of `backward` what autograd makes of it, and is it said so if not?

The truth here is a difference of `backward` itself along a direction, so the first derivative has to
be right before this is asked.
"""

from __future__ import annotations

import ast
import typing

import torch
from torch.autograd.function import once_differentiable

from torchsleuth.checker import mechanics, source
from torchsleuth.checker.bench import Bench, Evaluation, gradients, is_float, length, product
from torchsleuth.checker.randomness import restore_random
from torchsleuth.checker.trial import Finding
from torchsleuth.checker.truth import scales, tolerance_now
from torchsleuth.checker.variants import randn
from torchsleuth.model import Role

STEP = 1e-5
CUTS = ("detach", "data", "no_grad", "item", "tolist", "numpy")
_ONCE = once_differentiable(lambda ctx: None).__code__


class Second(typing.NamedTuple):
    state: str  # right | refused | wrong | fails | not-tried
    findings: tuple[Finding, ...] = ()


def refuses(bench: Bench) -> bool:
    """Whether backward is marked `@once_differentiable`."""
    function = getattr(bench.subject.function, bench.subject.backward_name)
    while function is not None:
        if getattr(function, "__code__", None) is _ONCE:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def double_backward(bench: Bench, evaluation: Evaluation) -> Second:
    """One pass through the engine with create_graph, compared with a difference of backward."""
    arguments = evaluation.arguments
    if plain := _without_engine(bench, evaluation):
        return plain
    leaves = {k: arguments.values[k].detach().requires_grad_() for k in arguments.checked}
    if bench.random:
        restore_random(bench.state)
    passed = tuple(
        (leaves[k].clone() if bench.writes else leaves[k]) if k in leaves
        else v.clone() if bench.writes and isinstance(v, torch.Tensor) else v
        for k, v in enumerate(arguments.values)
    )  # fmt: skip
    with torch.enable_grad():
        return _double_backward(bench, evaluation, leaves, passed)


def _without_engine(bench: Bench, evaluation: Evaluation) -> Second | None:
    """The short way, where backward sees inputs only: their copies here are leaves, and one engine call does.

    With a saved output, or an intermediate result, the real graph is needed; so it is wherever the
    short way does not find everything right.
    """
    context, passed = evaluation.run.context, evaluation.arguments.values
    if bench.random or bench.writes or refuses(bench) or mechanics.has_attributes(context) or evaluation.problems:
        return None
    places = [next((k for k, v in enumerate(passed) if v is saved), None) for saved in context.to_save or ()]
    if None in places or evaluation.run.context.dirty_tensors:
        return None
    leaves = {k: passed[k].detach().requires_grad_() for k in evaluation.arguments.checked}
    grads = tuple(None if g is None else g.detach().clone().requires_grad_() for g in evaluation.grads)
    context.to_save = tuple(leaves.get(k, passed[k]) for k in places)
    try:
        with torch.enable_grad():
            sent = tuple(torch.zeros_like(o) if g is None and isinstance(o, torch.Tensor) and context.materialize_grads else g
                         for g, o in zip(grads, evaluation.run.outputs, strict=True))  # fmt: skip
            raw = bench.subject.backward(context, sent)
            first = [raw[k] if isinstance(raw[k], torch.Tensor) else None for k in leaves]
            weights = [None if g is None else randn(g, bench.generator).clone() for g in first]
            roots = [(g, w) for g, w in zip(first, weights, strict=True) if g is not None and g.requires_grad]
            everything = [*leaves.values(), *(g for g in grads if g is not None)]
            if not roots:
                return None
            second = gradients([g for g, _ in roots], everything, [w for _, w in roots])
    except Exception:
        return None
    finally:
        context.to_save = tuple(passed[k] for k in places)
    if any(g is not None and g.shape != passed[k].shape for k, g in zip(leaves, first, strict=True)):
        return None
    result = _compared(bench, evaluation, list(leaves), weights, second)
    return result if result.state == "right" else None


def _double_backward(bench: Bench, evaluation: Evaluation, leaves: dict[int, torch.Tensor], passed: tuple) -> Second:
    try:
        returned = bench.subject.function.apply(*passed)
    except Exception as error:
        return Second("not-tried", (Finding("apply-raises", exception=described(error)),))
    outputs = returned if isinstance(returned, tuple) else (returned,)
    tracked = [(o, g) for o, g in zip(outputs, evaluation.grads, strict=True) if g is not None and is_float(o) and o.requires_grad]
    if not tracked:
        return Second("not-tried")
    grads = [g.detach().to(o.dtype, copy=True).requires_grad_() for o, g in tracked]
    roots = [o for o, _ in tracked]
    if refuses(bench):
        return _first_only(bench, roots, leaves, grads, "refused")
    try:
        first = gradients(roots, list(leaves.values()), grads, create_graph=True)
    except Exception as error:
        plain = _first_only(bench, roots, leaves, grads, "fails")
        if plain.findings:
            return plain
        return Second("fails", (_failure(bench, error, "first"),))
    weights = [None if g is None else randn(g, bench.generator) for g in first]
    scalar = sum((g * w).sum() for g, w in zip(first, weights, strict=True) if g is not None)
    everything = [*leaves.values(), *grads]
    if not isinstance(scalar, torch.Tensor) or not scalar.requires_grad:
        second: tuple = tuple(None for _ in everything)
    else:
        try:
            second = gradients([scalar], everything, [torch.ones_like(scalar)])
        except Exception as error:
            if "marked with @once_differentiable" in str(error):
                return Second("refused")
            return Second("fails", (_failure(bench, error, "second"),))
    with torch.no_grad():
        return _compared(bench, evaluation, list(leaves), weights, second)


def _first_only(bench: Bench, roots: list, leaves: dict, grads: list, state: str) -> Second:
    try:
        gradients(roots, list(leaves.values()), [g.detach() for g in grads], retain_graph=True)
    except Exception as error:
        return Second("not-tried", (Finding("engine-raises", exception=described(error)),))
    return Second(state)


def _compared(bench: Bench, evaluation: Evaluation, positions: list[int], weights: list, second: tuple) -> Second:
    arguments, sizes = evaluation.arguments, scales(evaluation.arguments)
    moves = [randn(arguments.values[k], bench.generator) * sizes[k] for k in positions]
    live = [o for o, g in enumerate(evaluation.grads) if g is not None]
    grad_moves = [randn(evaluation.grads[o], bench.generator) for o in live]
    pieces = [product(s, m) if s is not None else 0.0 for s, m in zip(second, [*moves, *grad_moves], strict=True)]
    along, along_grads = dict(zip(positions, moves, strict=True)), dict(zip(live, grad_moves, strict=True))
    if _rises_so(bench, evaluation, along, along_grads, weights, positions, sum(pieces)):
        return Second("right")
    truth, noise = _slope(bench, evaluation, along, along_grads, weights, positions)
    if truth is None:
        return Second("not-tried")
    if abs(truth - sum(pieces)) <= 1e-4 * (abs(truth) + noise) + 1e-8:
        return Second("right")
    wrong = []
    for position, (k, move) in enumerate(zip(positions, moves, strict=True)):
        part, noise = _slope(bench, evaluation, {k: move}, {}, weights, positions)
        finer, _ = _slope(bench, evaluation, {k: move}, {}, weights, positions, STEP / 10)
        if part is None or finer is None or abs(part - finer) > 1e-3 * abs(part) + 1e-4 * noise:
            continue  # next to a kink: two steps do not agree
        if abs(part - pieces[position]) > 1e-3 * abs(part) + 1e-4 * noise + 1e-7:
            wrong.append((k, pieces[position], part))
    lost = _lost_grads(bench, evaluation, along_grads, pieces[len(positions) :], weights, positions)
    if not wrong and not lost:
        return Second("right")
    culprit, saved = _intermediate(bench, evaluation, constant=not wrong)
    names = (*(arguments.names[k] for k, _, _ in wrong), *(name for name, _ in lost))
    wrong += [(-1, found, 0.0) for _, found in lost]
    missing = all(found == 0.0 for _, found, _ in wrong)
    return Second(
        "wrong",
        (Finding("double-backward", wrong[0][0], culprit=culprit, names=names, detail=("missing " if missing else "wrong ") + saved),),
    )


def _lost_grads(bench: Bench, evaluation: Evaluation, moves: dict, pieces: list[float], weights: list, positions: list[int]) -> list[tuple[str, float]]:
    """The grad_outputs whose derivative is wrong, by name: a backward that reads one without its graph is a constant in it."""
    from torchsleuth.checker.terms import backward_names

    names, out = backward_names(bench), []
    for (o, move), found in zip(moves.items(), pieces, strict=True):
        # backward is linear in them: a step of one is exact, in short types too.
        part, noise = _slope(bench, evaluation, {}, {o: move}, weights, positions, 1.0)
        if part is not None and abs(part - found) > max(1e-3, 10 * tolerance_now.get()) * (abs(part) + noise) + 1e-7:
            out.append((names[o] if o < len(names) else f"grad_outputs[{o}]", found))
    return out


def _rises_so(bench: Bench, evaluation: Evaluation, moves: dict, grad_moves: dict, weights: list, positions: list[int], found: float) -> bool:
    """The fast test: a one-sided difference from the pass at hand; what it does not pass is looked at again."""
    step = 1e-7
    arguments = evaluation.arguments
    moved = arguments.with_values(torch.add(v, moves[k], alpha=step) if k in moves else v for k, v in enumerate(arguments.values))
    grads = tuple(g if g is None or o not in grad_moves else torch.add(g, grad_moves[o], alpha=step) for o, g in enumerate(evaluation.grads))
    try:
        there = bench.evaluate(moved, grads).settled
    except Exception:
        return False
    rise, size = 0.0, 0.0
    for k, weight in zip(positions, weights, strict=True):
        ahead, here = there.get(k), evaluation.settled.get(k)
        if ahead is not None and here is not None and weight is not None:
            change = ahead - here
            rise += product(weight, change) / step
            size += length(change) / step
    return abs(rise - found) <= 1e-4 * (abs(rise) + size)


def _slope(bench: Bench, evaluation: Evaluation, moves: dict, grad_moves: dict, weights: list, positions: list[int], step: float = STEP):
    """d/dt <weights, backward(x + t * moves, grads + t * grad_moves)>, and the size of its parts."""
    arguments = evaluation.arguments
    sides = []
    for sign in (1, -1):
        moved = arguments.with_values(v + sign * step * moves[k] if k in moves else v for k, v in enumerate(arguments.values))
        grads = tuple(g if g is None or o not in grad_moves else g + sign * step * grad_moves[o] for o, g in enumerate(evaluation.grads))
        try:
            sides.append(bench.evaluate(moved, grads).settled)
        except Exception:
            return None, 0.0
    total, noise = 0.0, 0.0
    for k, weight in zip(positions, weights, strict=True):
        ahead, behind = sides[0].get(k), sides[1].get(k)
        if ahead is None or behind is None or weight is None:
            continue
        change = weight * (ahead - behind) / (2 * step)
        total += float(change.sum())
        noise += float(change.norm())
    return total, noise


def _intermediate(bench: Bench, evaluation: Evaluation, constant: bool = False):
    """Where forward saved something that is neither an input nor an output, if it did; `constant`: what it saved is not to blame."""
    forward, backward, setup = mechanics.methods(bench)
    method = setup if bench.subject.separate else forward
    run = bench.forward(evaluation.arguments)
    known = [*bench.passed, *run.outputs]
    strange = [p for p, t in enumerate(run.context.to_save or ()) if is_float(t) and not any(t is other for other in known)]
    node = None
    kind = ""
    if constant:
        method = None
    elif strange:
        kind = "saved"
        for part in source.own_nodes(method.tree) if method else ():
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "save_for_backward":
                plain = len(part.args) > strange[0] and not any(isinstance(a, ast.Starred) for a in part.args)
                node = part.args[strange[0]] if plain else part
    else:
        from torchsleuth.checker.subject import OWN_ATTRIBUTES

        for attribute, value in vars(run.context).items():
            tensors = mechanics._tensors_in(value) if attribute not in OWN_ATTRIBUTES else []
            if any(not any(t is other for other in known) for t in tensors) and method:
                kind, node = "attribute", source.kept_on_ctx(method, attribute)
                break
    if node is not None and method is not None:
        return source.culprit_of(method, node, "neither an input nor an output: a constant to double backward", Role.SAVE), kind
    if backward is not None:
        nodes = list(source.own_nodes(backward.tree))
        node = next((p for p in nodes if isinstance(p, ast.Attribute) and p.attr in CUTS), None)
        node = next((p for p in nodes if isinstance(p, ast.Call) and p.func is node), node)
        if node is not None:
            return source.culprit_of(backward, node, "cuts the graph of backward", Role.LOST_GRAD), "cut"
        node = next((p for p in nodes if isinstance(p, ast.Call) and isinstance(p.func, ast.Attribute) and p.func.attr == "apply"), None)
        if node is not None:
            return source.culprit_of(backward, node, "what this Function's own backward leaves out", Role.LOST_GRAD), "other"
    return None, kind


def _failure(bench: Bench, error: Exception, when: str) -> Finding:
    culprit = culprit_of_exception(error, bench.subject.name, "raises under create_graph=True")
    return Finding("double-backward-raises", exception=described(error), culprit=culprit, detail=when)


def described(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:300]}"


def culprit_of_exception(error: BaseException, name: str, label: str, role: Role = Role.OPERAND):
    """The deepest line of the user's own code in the traceback."""
    import torchsleuth

    home = torchsleuth.__path__[0]
    torch_home = torch.__path__[0]
    found = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((home, torch_home)):
            found = (file, trace.tb_lineno, trace.tb_frame.f_code)
        trace = trace.tb_next
    if found is None:
        return None
    return source.culprit_at(found[0], found[1], label, f"{name}.{found[2].co_name}", role)
