"""Relations of product and chain rule: a factor left out, a term left out, a sum over another axis.

Candidates are the tensors that forward and backward know by name, and the usual functions of them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import typing

import torch

from torchsleuth.checker.bench import Bench, is_float
from torchsleuth.checker.trial import Relation
from torchsleuth.checker.truth import differing

if typing.TYPE_CHECKING:
    from torchsleuth.checker.relation import Pair

Named = tuple[str, list[torch.Tensor]]

FORMS: tuple[tuple[str, typing.Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("{}", lambda t: t),
    ("1 / {}", lambda t: 1 / t),
    ("{} ** 2", lambda t: t * t),
    ("sign({})", torch.sign),
    ("(1 - {})", lambda t: 1 - t),
    ("(1 - {} ** 2)", lambda t: 1 - t * t),
    ("{0} * (1 - {0})", lambda t: t * (1 - t)),
    ("exp({})", torch.exp),
    ("exp(-{})", lambda t: torch.exp(-t)),
    ("sqrt({})", lambda t: t.clamp_min(0).sqrt()),
    ("1 / sqrt({})", lambda t: 1 / t.clamp_min(0).sqrt()),
    ("1 / {} ** 2", lambda t: 1 / (t * t)),
    ("cos({})", torch.cos),
    ("sin({})", torch.sin),
    ("sigmoid({})", torch.sigmoid),
    ("tanh({})", torch.tanh),
    ("log({})", lambda t: t.clamp_min(0).log()),
    ("({} > 0)", lambda t: (t > 0).double()),
)


def backward_names(bench: Bench) -> tuple[str, ...]:
    """What backward calls the gradients it is given."""
    try:
        parameters = list(inspect.signature(bench.subject.backward_code).parameters.values())[1:]
    except (ValueError, TypeError):
        return ()
    return tuple(p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL)


def known_tensors(pairs: list[Pair], names: tuple[str, ...]) -> list[Named]:
    """Inputs, outputs and grad_outputs by name, one tensor per pair."""
    first = pairs[0].evaluation
    out: list[Named] = []
    for j, value in enumerate(first.arguments.values):
        if isinstance(value, torch.Tensor):
            out.append((first.arguments.names[j], [p.evaluation.arguments.values[j].double() for p in pairs]))
    for o, value in enumerate(first.run.outputs):
        if is_float(value):
            name = "output" if len(first.run.outputs) == 1 else f"output{o}"
            out.append((name, [p.evaluation.run.outputs[o].double() for p in pairs]))
    for o, grad in enumerate(first.grads):
        if grad is not None:
            name = names[o] if o < len(names) else "grad_output" if len(first.grads) == 1 else f"grad_outputs[{o}]"
            out.append((name, [p.evaluation.grads[o].double() for p in pairs]))
    return out


def aligned(tensor: torch.Tensor, shape: torch.Size) -> typing.Iterator[torch.Tensor]:
    """The ways a tensor can be laid along a shape: broadcast from the right, or with one dimension put in."""
    if not tensor.ndim:
        yield tensor.expand(shape)
        return
    places: list[torch.Tensor] = [tensor]
    if tensor.ndim < len(shape):
        places += [tensor.unsqueeze(d) for d in range(tensor.ndim, 0, -1)]
    for place in places:
        while place.ndim < len(shape):
            place = place.unsqueeze(0)
        if place.ndim == len(shape) and all(a in (1, b) for a, b in zip(place.shape, shape, strict=True)):
            yield place.expand(shape)
            if place.numel() == torch.Size(shape).numel():
                return


def laid_out(pairs: list[Pair], names: tuple[str, ...]) -> typing.Iterator[Named]:
    shape = pairs[0].true.shape
    for name, tensors in known_tensors(pairs, names):
        for versions in zip(*(aligned(t, shape) for t in tensors), strict=False):
            yield name, list(versions)


def written_numbers(bench: Bench) -> tuple[float, ...]:
    """The numbers in the source of forward and backward that may be thresholds."""
    from torchsleuth.checker.mechanics import methods

    found = []
    for method in methods(bench)[:2]:
        for node in ast.walk(method.tree) if method is not None else ():
            if isinstance(node, ast.Compare) or isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("clamp"):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)) and not isinstance(part.value, bool) and part.value:
                        found += [float(part.value), -float(part.value)]
    return tuple(dict.fromkeys(found))[:8]


def conditions(pairs: list[Pair], names: tuple[str, ...], written: tuple[float, ...] = ()) -> typing.Iterator[Named]:
    """Elementwise conditions worth asking about, as (text, masks); `written` are numbers of the source."""
    arguments = pairs[0].evaluation.arguments
    whole = {n: v.dtype for n, v in zip(arguments.names, arguments.values, strict=True) if isinstance(v, torch.Tensor)}
    numbers = [(n, v) for n, v in zip(arguments.names, arguments.values, strict=True) if isinstance(v, (int, float)) and not isinstance(v, bool)]
    numbers += [(f"{v:g}", v) for v in written]
    everything = list(laid_out(pairs, names))
    for name, tensors in everything:
        if whole.get(name) is torch.bool:
            yield name, [t != 0 for t in tensors]
            yield f"not {name}", [t == 0 for t in tensors]
            continue
        if name in whole and not whole[name].is_floating_point:
            yield f"{name} != 0", [t != 0 for t in tensors]
        yield f"{name} > 0", [t > 0 for t in tensors]
        yield f"{name} < 0", [t < 0 for t in tensors]
        yield f"{name} >= 0", [t >= 0 for t in tensors]
        yield f"{name} <= 0", [t <= 0 for t in tensors]
        for text, number in numbers:
            yield f"{name} > {text}", [t > number for t in tensors]
            yield f"{name} < {text}", [t < number for t in tensors]
            yield f"{name} != {text}", [t != number for t in tensors]
    yield from _picked_once(pairs)
    # Where rows are picked by an input, those that happen not to be picked, or by their own number, are right by chance.
    picked = any(isinstance(v, torch.Tensor) and not v.is_floating_point() and v.dtype is not torch.bool for v in arguments.values)
    if not picked:
        yield from _by_index(pairs)
    for (a, first), (b, second) in itertools.combinations(everything, 2):
        yield f"{a} > {b}", [x > y for x, y in zip(first, second, strict=True)]
        yield f"{a} < {b}", [x < y for x, y in zip(first, second, strict=True)]
        if not picked:
            yield f"{a} == {b}", [x == y for x, y in zip(first, second, strict=True)]
            yield f"{a} != {b}", [x != y for x, y in zip(first, second, strict=True)]


def _picked_once(pairs: list[Pair]) -> typing.Iterator[Named]:
    """Rows that an index among the inputs names at most once: what is written twice, or only once where it should be added."""
    shape, arguments = pairs[0].true.shape, pairs[0].evaluation.arguments
    for name, index in zip(arguments.names, arguments.values, strict=True):
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int64, torch.int32) or not index.numel():
            continue
        for dim, n in enumerate(shape):
            if int(index.min()) < 0 or int(index.max()) >= n:
                continue
            place = arguments.names.index(name)
            counts = [torch.bincount(p.evaluation.arguments.values[place].reshape(-1).long(), minlength=n) for p in pairs]
            once = [(count < 2).view([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape) for count in counts]
            yield f"{name} names the index along dimension {dim} at most once", once


def _by_index(pairs: list[Pair]) -> typing.Iterator[Named]:
    """Parts along one dimension: its first or last elements, one half of it, every other one."""
    shape = pairs[0].true.shape
    for dim, n in enumerate(shape):
        if n < 2:
            continue
        place = f"the index along dimension {dim} is"
        index = torch.arange(n, device=pairs[0].true.device).view([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)
        for text, mask in (("not 0", index != 0), (f"not {n - 1}", index != n - 1), ("0", index == 0), (f"{n - 1}", index == n - 1)):
            yield f"{place} {text}", [mask for _ in pairs]
        if n > 2:
            for text, mask in (("even", index % 2 == 0), ("odd", index % 2 == 1)):
                yield f"{place} {text}", [mask for _ in pairs]
        for border in range(2, min(n - 1, 64)):
            yield f"{place} below {border}", [index < border for _ in pairs]
            yield f"{place} {border} or more", [index >= border for _ in pairs]


def constant_between(wanted: list[torch.Tensor], made: list[torch.Tensor]) -> float | None:
    """The one number c with wanted = c * made everywhere."""
    factor = None
    largest = max((float(want.abs().max()) for want in wanted if want.numel()), default=0.0)
    for want, have in zip(wanted, made, strict=True):
        if not bool(torch.isfinite(have).all()):
            return None
        if have.numel() and max(float(want.abs().max()), float(have.abs().max())) <= 1e-12 * largest:
            continue  # nothing but rounding
        square = float((have * have).sum())
        if not square > 1e-20:
            return None
        here = float((want * have).sum()) / square
        if abs(here) < 1e-9 or bool(differing(here * have, want).any()):
            return None
        if factor is not None and abs(here - factor) > 1e-6 * abs(factor):
            return None
        factor = here
    return factor


def tensor_factor(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    names = backward_names(bench)
    everything = list(laid_out(pairs, names))
    for form, function in FORMS:
        for name, tensors in everything:
            made = [function(t) for t in tensors]
            if all(not bool((m != m.reshape(-1)[0]).any()) for m in made if m.numel()):
                continue
            for detail in ("missing", "extra"):
                wanted, have = ([p.true for p in pairs], [p.returned for p in pairs])
                if detail == "extra":
                    wanted, have = have, wanted
                constant = constant_between(wanted, [h * m for h, m in zip(have, made, strict=True)])
                if constant is not None:
                    return Relation("tensor-factor", tensor=form.format(name), detail=detail, factor=constant)
    return None


def other_tensor(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """returned = grad_output * A and true = grad_output * B, for two tensors with names."""
    names = backward_names(bench)
    grads = [g for p in pairs for g in [next((g for g in p.evaluation.grads if g is not None), None)]]
    if any(g is None or g.shape != p.true.shape for g, p in zip(grads, pairs, strict=True)):
        return None
    found = {}
    for key, values in (("returned", [p.returned for p in pairs]), ("true", [p.true for p in pairs])):
        for (form, function), (name, tensors) in itertools.product(FORMS, laid_out(pairs, names)):
            constant = constant_between(values, [g * function(t) for g, t in zip(grads, tensors, strict=True)])
            if constant is not None:
                number = "" if abs(constant - 1) < 1e-6 else f"{constant:g} * "
                found[key] = number + form.format(name)
                break
        if key not in found:
            return None
    return Relation("other-tensor", tensor=found["returned"], instead=found["true"])


# -- sums ---------------------------------------------------------------------------------------


def _sums(pairs: list[Pair], names: tuple[str, ...]) -> typing.Iterator[tuple[str, str, int, list[torch.Tensor]]]:
    """a * sum over dim of (b * grad_output), for known a and b, over every dimension."""
    shape = pairs[0].true.shape
    grads = [next((g for g in p.evaluation.grads if g is not None), None) for p in pairs]
    if any(g is None or g.shape != shape for g in grads):
        return
    ones = ("", [torch.ones_like(p.true) for p in pairs])
    tensors = [ones]
    for name, versions in laid_out(pairs, ()):
        if not name.startswith("grad_output"):
            tensors += [(name, versions), (f"exp({name})", [v.exp() for v in versions])]
    for (a, left), (b, right) in itertools.product(tensors, tensors):
        for dim in range(len(shape)):
            yield a, b, dim, [x * (y * g).sum(dim, keepdim=True) for x, y, g in zip(left, right, grads, strict=True)]


def _sum_text(a: str, b: str, dim: int, grad: str) -> str:
    inner = f"({b} * {grad})" if b else grad
    return (f"{a} * " if a else "") + f"{inner}.sum({dim}, keepdim=True)"


def missing_sum(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    grad = (backward_names(bench) or ("grad_output",))[0]
    gaps = [p.true - p.returned for p in pairs]
    for a, b, dim, made in _sums(pairs, ()):
        constant = constant_between(gaps, made)
        if constant is not None:
            number = "" if abs(abs(constant) - 1) < 1e-6 else f"{abs(constant):.6g} * "
            sign = "-" if constant < 0 else ""
            return Relation("missing-sum", tensor=sign + number + _sum_text(a, b, dim, grad), dims=(dim,), factor=constant)
    return None


def wrong_axis(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    grad = (backward_names(bench) or ("grad_output",))[0]
    gaps = [p.true - p.returned for p in pairs]
    coupled = _coupled_dims(bench, pairs[0], k)
    grouped: dict[tuple[str, str], dict[int, list[torch.Tensor]]] = {}
    for a, b, dim, made in _sums(pairs, ()):
        grouped.setdefault((a, b), {})[dim] = made
    for (a, b), sums in grouped.items():
        for right, wrong in itertools.permutations(sums, 2):
            if right not in coupled:
                continue
            constant = constant_between(gaps, [x - y for x, y in zip(sums[right], sums[wrong], strict=True)])
            if constant is not None:
                return Relation("wrong-axis", tensor=_sum_text(a, b, right, grad), dims=(wrong, right), factor=constant)
    return None


def _coupled_dims(bench: Bench, pair: Pair, k: int) -> set[int]:
    """The dimensions along which one element of grad_output reaches other elements of the true gradient."""
    from torchsleuth.checker.truth import through_forward

    grads = tuple(None if g is None else torch.zeros_like(g) for g in pair.evaluation.grads)
    first = next(g for g in grads if g is not None)
    first.view(-1)[0] = 1.0
    found = through_forward(bench, pair.evaluation._replace(grads=grads)).get(k)
    if found is None:
        return set(range(pair.true.ndim))
    return {dim for dim in range(found.ndim) if bool((found.narrow(dim, 1, found.shape[dim] - 1).abs() > 1e-12).any())}
