"""What a loss takes as given and that still has its history: a target made of the network's own next value, the weight of a score.

Both are read off the trace of a step. A target: `r + gamma * q(next)` is compared with `q(now)`, both of one network, whose last layer
gives both. A score: the log-probability of a sample that was drawn from it without history, times something that is trained itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from torchsleuth.auditor.observation_training import Undetached
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

_DIFFERENCES = {"sub", "rsub", "subtract"}
_COMPARING = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
_SIZING = {"pow", "square", "abs", *_COMPARING}
_SUMS = {"add", "radd"}
_PRODUCTS = {"mul", "rmul", "multiply"}
_ENDING = {"where", "masked_fill"}
_TURNING = {"rsub", "logical_not", "bitwise_not", "invert"}  # `1 - done`
_CHOOSING = {"where", "masked_fill", "max", "amax", "min", "amin", "gather", "minimum", "maximum", "logsumexp"}
_DRAWS = {"multinomial", "normal", "bernoulli", "poisson", "binomial"}


def undetached(trace: Trace, loss: int | None, keys: dict[str, int], trained: set[str]) -> list[Undetached]:
    """`trained`: parameters of the model, whose numbers are `keys`, that the optimizer holds and that got a gradient."""
    if loss is None or not trained or trace.truncated:
        return []
    before = trace.ancestors({loss})
    on_the_way = [op for op in trace.ops if op.grad_enabled and any(seen.key in before for seen in op.outs)]
    learned = {keys[name]: name for name in trained if name in keys}
    found = [*_targets(trace, on_the_way, learned), *_weights_of_scores(trace, on_the_way, learned)]
    return list({fact.site.span: fact for fact in found}.values())


# -- targets ---------------------------------------------------------------------------------------


def _targets(trace: Trace, on_the_way: list[Op], learned: dict[int, str]) -> Iterator[Undetached]:
    for op in on_the_way:
        sides = [seen for seen in op.ins if seen.requires_grad]
        if len(sides) != 2 or sides[0].key == sides[1].key or not _compares(op, on_the_way):
            continue
        for target, guess in (sides, sides[::-1]):
            fact = _bootstrapped(trace, target, guess, learned)
            if fact is not None:
                yield fact
                break


def _compares(op: Op, on_the_way: list[Op]) -> bool:
    """A loss of two tensors; or their difference, of which only the size is taken."""
    if _plain(op) in _COMPARING:
        return True
    made = {seen.key for seen in op.outs}
    users = [user for user in on_the_way if any(seen.key in made for seen in user.ins)]
    return _plain(op) in _DIFFERENCES and any(_plain(user) in _SIZING or (_plain(user) == "mul" and {seen.key for seen in user.ins} <= made) for user in users)


def _bootstrapped(trace: Trace, target: Seen, guess: Seen, learned: dict[int, str]) -> Undetached | None:
    """`data + factor * network(...)`, where the guess comes out of the same last layer for other inputs."""
    total = _maker(trace, target, ARRANGING)
    given = [seen for seen in total.ins if not seen.requires_grad and seen.size] if total is not None and _plain(total) in _SUMS else []
    following = [seen for seen in total.ins if seen.requires_grad] if total is not None and len(given) == 1 else []
    if total is None or len(following) != 1 or given[0].key in trace.parameters:
        return None
    seen, steps = following[0], list[Op]()
    for _ in range(16):
        op = trace.maker(seen)
        histories = [one for one in op.ins if one.requires_grad] if op is not None else []
        if op is None or len(histories) != 1 or not ({op.name, _plain(op)} & (ARRANGING | _PRODUCTS | _CHOOSING)) or _parameters(op, learned):
            break
        steps.append(op)
        seen = histories[0]
    discounted = any(_plain(op) in _PRODUCTS and all(abs(number) <= 1 for number in _numbers(op)) for op in steps)
    chosen = any(_plain(op) in _CHOOSING - _ENDING for op in steps)
    if not chosen and not any(_ends(trace, op) for op in steps):
        return None  # a step of a path, with a factor: an equation that both sides are to fulfil
    one, other = _layer(trace, seen, learned), _layer(trace, guess, learned)
    if not discounted or one is None or other is None or one.ins[0].key == other.ins[0].key:
        return None
    shared = _parameters(one, learned) & _parameters(other, learned)
    site = trace.site(total)
    if not shared or site is None or site.library or (not chosen and _selects(trace, guess, other)):
        return None
    outside = [op for op in steps if op.place.user_code is not one.place.user_code]  # of the network's own code
    return Undetached("target", site, trace.site(outside[-1]) if outside else None, _names(trace, seen, learned))


def _ends(trace: Trace, op: Op) -> bool:
    """Leaves out what comes after the end of an episode: a flag for each of the rows, or one less such a flag."""
    if _plain(op) in _ENDING:
        return True
    factors = [seen for seen in op.ins if not seen.requires_grad and _count(seen) > 1] if _plain(op) in _PRODUCTS else []
    while factors:
        seen = factors.pop()
        made = _maker(trace, seen, ARRANGING)
        if made is None:
            continue
        if seen.dtype == torch.bool or _plain(made) in _TURNING or any(one.dtype == torch.bool for one in made.ins):
            return True
        if _plain(made) in _PRODUCTS:
            factors += [one for one in made.ins if _count(one) > 1]
    return False


def _layer(trace: Trace, seen: Seen, learned: dict[int, str]) -> Op | None:
    """The layer whose result this is, but for choosing one of its columns."""
    op = _maker(trace, seen, ARRANGING | _CHOOSING)
    return op if op is not None and _parameters(op, learned) and op.ins[0].key not in learned else None


def _selects(trace: Trace, seen: Seen, until: Op) -> bool:
    """Is some column taken on the way, which may be another quantity than the whole is?"""
    return any(op.name == "__getitem__" and op.outs and op.ins and _count(op.outs[0]) < _count(op.ins[0]) for op in trace.made_through(seen, ARRANGING | _CHOOSING) if op is not until)


# -- scores ----------------------------------------------------------------------------------------


def _weights_of_scores(trace: Trace, on_the_way: list[Op], learned: dict[int, str]) -> Iterator[Undetached]:
    sampled: set[int] = set()
    for op in trace.ops:
        site = trace.site(op) if op.name in _DRAWS else None
        sampled.update(seen.key for seen in op.outs if not seen.requires_grad and (op.name == "multinomial" or (site is not None and ".sample(" in site.source)))
    sampled = _arranged(trace, sampled)
    scores = [op for op in on_the_way if _is_score(trace, op, sampled)] if sampled else []
    if not scores:
        return
    made = {seen.key for op in scores for seen in op.outs}
    below = trace.descendants(made)
    for op in on_the_way:
        if _plain(op) not in _PRODUCTS or len(op.ins) != 2 or not all(seen.requires_grad for seen in op.ins):
            continue
        for score, weight in (op.ins, op.ins[::-1]):
            site = trace.site(op)
            if score.key not in below or weight.key in below or weight.key in trace.parameters or _count(weight) < 2 or site is None or site.library:
                continue
            names = _names(trace, weight, learned)
            if names and _estimates(trace, weight):
                yield Undetached("score", site, None, names)


def _is_score(trace: Trace, op: Op, sampled: set[int]) -> bool:
    """Takes a sample, which has no history, and the distribution it was drawn from, which has one."""
    if not any(seen.key in sampled for seen in op.ins) or not any(seen.requires_grad for seen in op.ins) or not op.outs or not op.outs[0].requires_grad:
        return False
    site = trace.site(op)
    return site is not None and ("log_prob" in site.source or (op.name == "gather" and _softened(trace, op.ins[0])))


def _softened(trace: Trace, seen: Seen) -> bool:
    op = _maker(trace, seen, ARRANGING)
    return op is not None and op.name in ("log_softmax", "logsigmoid", "log")


def _estimates(trace: Trace, weight: Seen) -> bool:
    """Is something trained taken away from something else on the way to it, as an estimate is from a return?"""
    return any(_plain(op) in _DIFFERENCES and len(op.ins) == 2 for op in _history(trace, weight))


def _arranged(trace: Trace, keys: set[int]) -> set[int]:
    """These, and what holds nothing but their numbers: stacked, reshaped."""
    found = set(keys)
    for op in trace.ops:
        if (op.name in ARRANGING or op.name in ("stack", "cat", "broadcast_tensors", "long", "detach")) and op.ins and any(seen.key in found for seen in op.ins[:1]):
            found.update(seen.key for seen in op.outs if not seen.requires_grad)
    return found


# -- words of the trace ----------------------------------------------------------------------------


def _plain(op: Op) -> str:
    return op.name.strip("_")


def _maker(trace: Trace, seen: Seen, through: Iterable[str]) -> Op | None:
    """What made this, but for what only rearranges."""
    last = None
    for op in trace.made_through(seen, set(through)):
        last = op
    return last


def _parameters(op: Op, learned: dict[int, str]) -> set[int]:
    return {seen.key for seen in op.ins} & learned.keys()


def _names(trace: Trace, seen: Seen, learned: dict[int, str]) -> tuple[str, ...]:
    """What a gradient that goes in here trains."""
    found = {one.key for op in _history(trace, seen) for one in op.ins}
    return tuple(sorted(learned[key] for key in (found | {seen.key}) & learned.keys()))


def _history(trace: Trace, seen: Seen) -> list[Op]:
    """The calls that a gradient which goes in here comes through: a sample that was drawn on the way has none."""
    found, todo = {seen.key}, [seen]
    ops = []
    while todo:
        op = trace.maker(todo.pop())
        if op is None or not op.grad_enabled:
            continue
        ops.append(op)
        for one in op.ins:
            if one.requires_grad and one.key not in found:
                found.add(one.key)
                todo.append(one)
    return ops


def _numbers(op: Op) -> list[float]:
    return [value for value in (*op.plain[0], *op.plain[1].values()) if isinstance(value, (int, float)) and not isinstance(value, bool)]


def _count(seen: Seen) -> int:
    count = 1
    for n in seen.size:
        count *= n
    return count


