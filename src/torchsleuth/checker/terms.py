"""Relations of product and chain rule: a factor left out, a term left out, a sum over another axis.

Candidates for factors are the tensors that forward and backward know by name, and the usual functions
of them. Terms are found by cutting, one after the other, the paths of forward's own autograd graph:
if the gradient with one path cut is what backward returned, that path is what backward forgot.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
import typing

import torch

from torchsleuth.checker.bench import Bench, gradients, is_float
from torchsleuth.checker.trial import Relation
from torchsleuth.checker.truth import differentiable_run, differing

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
    for (a, first), (b, second) in itertools.combinations(everything, 2):
        yield f"{a} > {b}", [x > y for x, y in zip(first, second, strict=True)]
        yield f"{a} < {b}", [x < y for x, y in zip(first, second, strict=True)]
        yield f"{a} == {b}", [x == y for x, y in zip(first, second, strict=True)]
        yield f"{a} != {b}", [x != y for x, y in zip(first, second, strict=True)]
    yield from _picked_once(pairs)
    # Where rows are picked by an input, those that happen not to be picked, or by their own number, are right by chance.
    if not any(isinstance(v, torch.Tensor) and not v.is_floating_point() and v.dtype is not torch.bool for v in arguments.values):
        yield from _by_index(pairs)


def _picked_once(pairs: list[Pair]) -> typing.Iterator[Named]:
    """Rows that an index among the inputs names at most once: what is written twice, or only once where it should be added."""
    shape, arguments = pairs[0].true.shape, pairs[0].evaluation.arguments
    for name, index in zip(arguments.names, arguments.values, strict=True):
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int64, torch.int32) or not index.numel():
            continue
        for dim, n in enumerate(shape):
            if int(index.min()) < 0 or int(index.max()) >= n:
                continue
            once = (torch.bincount(index.reshape(-1).long(), minlength=n) < 2).view([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)
            yield f"{name} names the index along dimension {dim} at most once", [once for _ in pairs]


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


def _constant(wanted: list[torch.Tensor], made: list[torch.Tensor]) -> float | None:
    """The one number c with wanted = c * made everywhere."""
    factor = None
    for want, have in zip(wanted, made, strict=True):
        if not bool(torch.isfinite(have).all()):
            return None
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
                constant = _constant(wanted, [h * m for h, m in zip(have, made, strict=True)])
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
            constant = _constant(values, [g * function(t) for g, t in zip(grads, tensors, strict=True)])
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
        constant = _constant(gaps, made)
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
            constant = _constant(gaps, [x - y for x, y in zip(sums[right], sums[wrong], strict=True)])
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


# -- paths --------------------------------------------------------------------------------------

LIMIT = 60  # nodes: a larger graph is not cut


class _Graph(typing.NamedTuple):
    """Forward's own autograd graph at one set of inputs, and the pairs that were found there."""

    leaf: torch.Tensor
    roots: list[torch.Tensor]
    outputs: tuple
    nodes: list
    pairs: list[Pair]

    def gradients(self, node: int | None = None, edge: int | None = None) -> list[torch.Tensor]:
        """The gradient per pair, with the result of a node, or one use of a result, treated as a constant."""
        handle = _cut(self.nodes[node], edge) if node is not None else None
        try:
            out = []
            for pair in self.pairs:
                grads = [g for o, g in zip(self.outputs, pair.evaluation.grads, strict=True) if is_float(o) and o.grad_fn is not None]
                (found,) = gradients(self.roots, [self.leaf], [g.clone() for g in grads], retain_graph=True)
                out.append(torch.zeros_like(self.leaf) if found is None else found)
            return out
        finally:
            if handle is not None:
                handle.remove()


@torch.enable_grad()
def missing_path(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """The operation of forward whose share of the gradient is missing, or taken so many times."""
    graphs: list[_Graph] = []
    for arguments in {id(p.evaluation.arguments): p.evaluation.arguments for p in pairs}.values():
        graph = _graph(bench, [p for p in pairs if p.evaluation.arguments is arguments], k)
        if graph is None and not graphs:
            return None
        if graph is not None and (not graphs or [type(n) for n in graph.nodes] == [type(n) for n in graphs[0].nodes]):
            graphs.append(graph)
    for graph in graphs:
        _constants_cut(graph)
    everything = [p for graph in graphs for p in graph.pairs]
    returned, true = [p.returned for p in everything], [p.true for p in everything]
    for node, edge in _cuts(graphs[0].nodes):
        try:
            cut = [found for graph in graphs for found in graph.gradients(node, edge)]
        except RuntimeError:
            continue
        share = [t - c for t, c in zip(true, cut, strict=True)]
        # A cut that changes nothing is no term, and one that leaves nothing is the whole gradient.
        if not any(bool((c != 0).any()) for c in cut) or not any(bool(differing(c, t).any()) for c, t in zip(cut, true, strict=True)):
            continue
        if all(not bool(differing(r, c).any()) for r, c in zip(returned, cut, strict=True)):
            return _path_relation(bench, graphs[0].nodes[node], edge, "missing")
        only = _constant(returned, share)
        if only is not None and (len(graphs) > 1 or abs(only) == 1):
            return _path_relation(bench, graphs[0].nodes[node], edge, "only", only)
        times = _constant([r - c for r, c in zip(returned, cut, strict=True)], share)
        if times is not None and len(graphs) > 1:
            return _path_relation(bench, graphs[0].nodes[node], edge, "scaled", times)
    return None


def _graph(bench: Bench, pairs: list[Pair], k: int) -> _Graph | None:
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            leaves, run = differentiable_run(bench, pairs[0].evaluation.arguments)
    except Exception:
        return None
    roots = [out for out in run.outputs if is_float(out) and out.grad_fn is not None]
    nodes = _nodes(roots)
    return _Graph(leaves[k], roots, run.outputs, nodes, pairs) if roots and 1 < len(nodes) <= LIMIT else None


def _constants_cut(graph: _Graph) -> None:
    """Results that the outputs do not depend on, such as a maximum subtracted before exp, are cut for good: their paths cancel."""
    sizes: dict[int, float] = {}

    def seen(position: int) -> typing.Callable:
        def hook(grads):
            sizes[position] = max([sizes.get(position, 0.0), *(float(g.abs().max()) for g in grads if g is not None and g.numel())])

        return hook

    inner = [(p, node) for p, node in enumerate(graph.nodes) if p and type(node).__name__ != "AccumulateGrad"]
    handles = [node.register_prehook(seen(position)) for position, node in inner]
    try:
        graph.gradients()
    except RuntimeError:
        return
    finally:
        for handle in handles:
            handle.remove()
    for position, node in inner:
        if position in sizes and sizes[position] <= 1e-11 * max(sizes.values()):
            _cut(node, None)


def _nodes(roots: list[torch.Tensor]) -> list:
    seen, pending = [], [out.grad_fn for out in roots]
    while pending and len(seen) <= LIMIT:
        node = pending.pop(0)
        if node is None or any(node is other for other in seen):
            continue
        seen.append(node)
        pending += [child for child, _ in node.next_functions]
    return seen


def _cuts(nodes: list) -> typing.Iterator[tuple[int, int | None]]:
    """First whole results treated as constants, then single uses of a result: positions in `nodes`, and edges."""
    for position, node in enumerate(nodes):
        if position and type(node).__name__ != "AccumulateGrad":
            yield position, None
    for position, node in enumerate(nodes):
        live = [e for e, (child, _) in enumerate(node.next_functions) if child is not None]
        if len(live) > 1 or any(type(node.next_functions[e][0]).__name__ == "AccumulateGrad" for e in live):
            for edge in live:
                yield position, edge


def _cut(node: typing.Any, edge: int | None):
    def hook(inputs, outputs):
        return tuple(
            torch.zeros_like(g) if g is not None and (edge is None or position == edge) else g
            for position, g in enumerate(inputs)
        )

    return node.register_hook(hook)


def _path_relation(bench: Bench, node: typing.Any, edge: int | None, detail: str, factor: float = 0.0) -> Relation:
    file, line = _origin(bench, node)
    text = linecache.getline(file, line).strip() if file else ""
    operation = re.sub(r"Backward\d*$", "", type(node).__name__)
    return Relation("missing-term", tensor=text or operation, line=line, detail=detail, other=-1 if edge is None else edge,
                    instead=operation, factor=factor)  # fmt: skip


def _origin(bench: Bench, node: typing.Any) -> tuple[str, int]:
    """The line of forward that made a node, from what anomaly mode recorded."""
    file = getattr(getattr(bench.subject.forward_code, "__code__", None), "co_filename", "")
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = re.match(r'\s*File "(.*?)", line (\d+), in (\S+)', entry)
        if found and found[1] == file:
            return file, int(found[2])
    return "", 0
