"""The terms that a loss is the sum of, and which of them no gradient goes through although they were computed from what is trained."""

from __future__ import annotations

from torchsleuth.auditor.gradients.gradients import Flow
from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.tracing.exits import ARRAYS
from torchsleuth.auditor.tracing.trace import ENTRIES, Op, Seen, Trace

SUMS = {"add", "sub", "__radd__", "__rsub__", "radd", "rsub", "add_", "sub_", "__add__", "__sub__", "__iadd__", "__isub__"}
_SCALES = {"mul", "div", "neg", "__rmul__", "__mul__", "__truediv__", "true_divide", "mul_", "div_", "squeeze", "view", "reshape", "to", "float", "mean", "sum", "clone"}
_ACCIDENTS = {"argmax", "compare", "integer", "tensor", "data", "derivative", "other"}  # `detach` and `no_grad` are there to be taken at their word
MOST_TERMS = 64


def constant_terms(trace: Trace, loss: int | None, keys: dict[str, int], trained: set[str]) -> list[Cut]:
    """Terms without history in a loss that has one, cut off by something that gives whole numbers, truth values, copies or derivatives
    without a graph.

    A number that is put in the place of another on purpose (`soft + (hard - soft).data`) is computed from a term that does count.
    """
    terms = _terms(trace, loss)
    alive = {seen.key for seen in terms if seen.requires_grad}
    found = []
    for term in terms:
        before = trace.ancestors({term.key})
        if term.requires_grad or not alive or before & alive:
            continue
        ends = _cuts(trace, before)
        accidents = [op for op in ends if Flow.reason(op) in _ACCIDENTS]
        blamed, sources = accidents[-1:], before
        meant = trace.ancestors({seen.key for op in ends if op not in accidents for seen in op.ins})
        if any(keys[name] in meant for name in trained):
            continue  # something on the way from what is trained here is cut off on purpose, too
        if not ends and (left := _through_an_array(trace, before)) is not None:
            blamed, sources = [left], trace.ancestors({seen.key for seen in left.ins})
        who = tuple(sorted(name for name, key in keys.items() if key in sources and name in trained))
        for op in blamed:
            site, made = trace.site(op), trace.maker(term)
            if who and site is not None and not site.library:
                found.append(Cut(op.name, Flow.reason(op), site, who, partly=True, term=trace.site(made) if made is not None else None, sure=bool(ends)))
    return found


def idle(trace: Trace, loss: int | None) -> set[int]:
    """What the terms without history were computed from, and no term that has one."""
    terms = _terms(trace, loss)
    alive = {seen.key for seen in terms if seen.requires_grad}
    return trace.ancestors({seen.key for seen in terms if not seen.requires_grad}) - trace.ancestors(alive) if alive else set()


def sums_of(trace: Trace, loss: int | None) -> list[Op]:
    """The calls that add the loss up, and those that made its terms."""
    found: list[Op] = []
    _terms(trace, loss, found)
    return found


def _terms(trace: Trace, loss: int | None, passed: list[Op] | None = None) -> list[Seen]:
    """Single numbers that the loss is the sum of, apart from constant factors. `passed`: where the calls on the way are put."""
    made = trace.producer.get(loss) if loss is not None else None
    todo = list(trace.ops[made].outs[:1]) if made is not None else []
    found: list[Seen] = []
    while todo and len(found) < MOST_TERMS:
        seen = todo.pop()
        op = trace.maker(seen)
        if op is not None and passed is not None:
            passed.append(op)
        inner = [one for one in op.ins if _count(one) == 1] if op is not None and seen.requires_grad else []
        if op is not None and op.name in SUMS and len(inner) == len(op.ins):
            todo += inner
        elif op is not None and op.name in _SCALES and len(op.ins) == 1 and inner:
            todo += inner
        elif op is not None and op.name in ("sum", "mean") and (listed := trace.maker(op.ins[0])) is not None and listed.name == "stack":
            todo += [one for one in listed.ins if _count(one) == 1]
        else:
            found.append(seen)
    return found


def _cuts(trace: Trace, before: set[int]) -> list[Op]:
    """Calls on the way to these whose inputs had a history, and whose results have none."""
    return [
        op for op in trace.ops
        if any(seen.key in before and not seen.requires_grad for seen in op.outs) and any(seen.requires_grad for seen in op.ins) and not any(seen.requires_grad for seen in op.outs) and not _filled(op)
    ]  # fmt: skip


def _through_an_array(trace: Trace, before: set[int]) -> Op | None:
    """The call that handed out an array (or list) of computed numbers, where they were made into a tensor again on the way to these: on the same
    line, or further on in the same function. Arrays are made to look at, too, and tensors of data; of several calls none is blamed."""
    taken: set[int] = set()
    for entry in trace.ops:
        made = entry.name in ENTRIES and not entry.ins and any(seen.key in before and seen.dtype.is_floating_point for seen in entry.outs)
        strange = {seen.key for seen in entry.ins if seen.key in before and _strange(trace, seen)} - taken
        taken |= strange
        here = trace.site(entry) if made or strange else None
        if here is None:
            continue
        left = [op for op in trace.ops[: entry.index] if op.name in ARRAYS and op.place.user_code is entry.place.user_code]
        computed = [op for op in left if trace.ancestors({seen.key for seen in op.ins}) & trace.parameters.keys()]
        places = {site.span: op for op in computed if (site := trace.site(op)) is not None}
        beside = [op for span, op in places.items() if span.line == here.span.line]
        if len(one := beside or (list(places.values()) if "from_numpy(" in here.source else [])) == 1:  # a call that does not show itself
            return one[0]
    return None


def _strange(trace: Trace, seen: Seen) -> bool:
    return seen.key not in trace.producer and seen.key not in trace.parameters and seen.dtype.is_floating_point


def _filled(op: Op) -> bool:
    """It takes no more than the size of what it is given; or freezes it."""
    return op.name.endswith("_like") or op.name.startswith("new_") or op.name == "requires_grad_"


def _count(seen: Seen) -> int:
    total = 1
    for n in seen.size:
        total *= n
    return total
