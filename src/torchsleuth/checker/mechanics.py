"""Everything about a Function that is not the value of its gradient: what it keeps, writes, marks and returns."""

from __future__ import annotations

import typing
import weakref

import torch

from torchsleuth.checker import source
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, gradients, is_float
from torchsleuth.checker.subject import OWN_ATTRIBUTES
from torchsleuth.checker.trial import Finding
from torchsleuth.checker.truth import differing
from torchsleuth.model import Role
from torchsleuth.uncollected import uncollected


class Watch:
    """Which tensors are written to between its making and `written`: by version, and by value."""

    def __init__(self, tensors: typing.Sequence):
        self.tensors = [(k, t, t._version, t.clone()) for k, t in enumerate(tensors) if isinstance(t, torch.Tensor)]

    def counted(self) -> list[int]:
        """By version alone."""
        return [k for k, t, version, _ in self.tensors if t._version != version]

    def written(self) -> list[int]:
        return [k for k, t, version, copy in self.tensors if t._version != version or not same_values(t, copy)]


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def methods(bench: Bench) -> tuple[source.Method | None, source.Method | None, source.Method | None]:
    """The source of forward, backward and setup_context."""
    subject = bench.subject
    setup = getattr(subject.function, "setup_context", None) if subject.separate else None
    return (
        source.method_of(subject.forward_code, f"{subject.name}.forward"),
        source.method_of(subject.backward_code, f"{subject.name}.{subject.backward_name}"),
        source.method_of(setup, f"{subject.name}.setup_context") if setup else None,
    )


def unmarked_writes(bench: Bench, arguments: Arguments, written: list[int], run: typing.Any) -> tuple[list[Finding], list[str]]:
    """Inputs that forward wrote to without `ctx.mark_dirty`; remarks on those that autograd has no business with."""
    dirty = [id(t) for t in (run.context.dirty_tensors or ())]
    forward = methods(bench)[0]
    out, remarks = [], []
    for k in written:
        if id(bench.passed[k]) in dirty:
            continue
        name = arguments.names[k]
        returned = any(o is bench.passed[k] for o in run.outputs)
        if k not in arguments.checked and not returned:
            # Running statistics, say: without a history there is none that could be wrong.
            remarks.append(f"forward writes into {name}, which requires no grad; every experiment was run on copies")
            continue
        node = source.in_place_write(forward, [name]) if forward else None
        culprit = source.culprit_of(forward, node, f"writes into {name}", Role.MUTATE) if node else None
        out.append(Finding("unmarked-write", k, culprit=culprit, detail="returned" if returned else ""))
    return out, remarks


def backward_writes(bench: Bench, arguments: Arguments, run: typing.Any = None) -> tuple[list[Finding], Evaluation]:
    """A pass during which it is seen what backward writes into: grad_output, or tensors that belong to the caller."""
    if run is None or bench.writes or bench.random:
        run, passed = bench.forward(arguments), bench.passed
    else:
        passed = arguments.values
    grads = bench.random_grads(run)
    input_watch, outputs_watch = Watch(passed), Watch(run.outputs)
    evaluation = bench.evaluate(arguments, grads, run=run)
    touched = [o for o, (g, sent) in enumerate(zip(grads, bench.sent, strict=True)) if g is not None and (sent._version or not same_values(g, sent))]
    written = touched, input_watch.written(), outputs_watch.written()
    if not any(written):
        return [], evaluation
    backward = methods(bench)[1]
    out: list[Finding] = []
    from torchsleuth.checker.terms import backward_names

    names = backward_names(bench)
    for k in written[0]:
        name = names[k] if k < len(names) else "grad_output"
        node = source.in_place_write(backward, names or ["grad_output"]) if backward else None
        culprit = source.culprit_of(backward, node, f"writes into {name}", Role.MUTATE) if node else None
        out.append(Finding("grad-output-write", culprit=culprit, names=(name,)))
    for k in written[1]:
        node = source.in_place_write(backward, _saved_names(backward)) if backward else None
        culprit = source.culprit_of(backward, node, f"writes into {arguments.names[k]}", Role.MUTATE) if node else None
        out.append(Finding("saved-write", k, culprit=culprit, names=(arguments.names[k],)))
    if not out and written[2]:
        node = source.in_place_write(backward, _saved_names(backward)) if backward else None
        culprit = source.culprit_of(backward, node, "writes into the output", Role.MUTATE) if node else None
        out.append(Finding("saved-write", culprit=culprit, names=("the output",)))
    clean = arguments.with_values(
        next((copy for j, _, _, copy in input_watch.tensors if j == k), v) for k, v in enumerate(arguments.values)
    )
    for k, copy in ((k, copy) for k, _, _, copy in input_watch.tensors):
        if isinstance(arguments.values[k], torch.Tensor) and k in written[1] and not bench.writes:
            arguments.values[k].copy_(copy)  # our own copy of the input; the user's is not in reach
    return out, bench.evaluate(clean)


def _saved_names(method: source.Method) -> list[str]:
    """The names that `ctx.saved_tensors` is unpacked to, and attributes of ctx given a name."""
    import ast

    out = []
    for node in source.own_nodes(method.tree):
        if isinstance(node, ast.Assign) and any(isinstance(part, ast.Attribute) for part in ast.walk(node.value)):
            for target in node.targets:
                out += [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
    return out


def outputs(bench: Bench, arguments: Arguments, run: typing.Any) -> list[Finding]:
    """Views returned, and integer outputs that are not marked."""
    out: list[Finding] = []
    dirty = [id(t) for t in (run.context.dirty_tensors or ())]
    marked = [id(t) for t in (run.context.non_differentiable or ())]
    for position, value in enumerate(run.outputs):
        if not isinstance(value, torch.Tensor):
            continue
        if not value.is_floating_point() and not value.is_complex() and id(value) not in marked:
            out.append(Finding("unmarked-integer", input=position, returned_dtype=str(value.dtype).removeprefix("torch."),
                               culprit=_return_culprit(methods(bench)[0], position, "an integer output")))  # fmt: skip
        if not value.numel() or not value.is_floating_point() or id(value) in dirty:
            continue
        for k, given in enumerate(bench.passed if bench.writes else arguments.values):
            if isinstance(given, torch.Tensor) and given.numel() and _shares(given, value):
                label = f"{'is' if value is given else 'is a view of'} {arguments.names[k]}"
                out.append(Finding("view", k, names=(arguments.names[k],), detail="same" if value is given else "view",
                                   culprit=_return_culprit(methods(bench)[0], position, label), returned_count=position))  # fmt: skip
                break
    return out


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.device == b.device and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _return_culprit(forward: source.Method | None, position: int, label: str):
    if forward is None:
        return None
    node = source.returned_expression(forward, position, 1, follow=False)
    return source.culprit_of(forward, node, label, Role.CREATE) if node is not None else None


def kept_on_ctx(bench: Bench, arguments: Arguments, run: typing.Any) -> list[Finding]:
    """Inputs and outputs that are attributes of ctx, where the harm of that can be shown."""
    out = []
    forward, _, setup = methods(bench)
    for attribute, value in vars(run.context).items():
        if attribute in OWN_ATTRIBUTES:
            continue
        for tensor in _tensors_in(value):
            k = next((k for k, given in enumerate(bench.passed) if given is tensor), None)
            o = next((o for o, given in enumerate(run.outputs) if given is tensor), None)
            if k is not None and o is None:
                harm = _overwritten_unseen(bench, arguments, k)
                name = arguments.names[k]
            elif o is not None:
                harm = _leaks(bench, arguments, o)
                name = "the output" if len(run.outputs) == 1 else f"output {o}"
            else:
                continue
            if not harm:
                continue
            method = setup if bench.subject.separate else forward
            node = source.kept_on_ctx(method, attribute) if method else None
            culprit = source.culprit_of(method, node, f"keeps {name} on ctx", Role.SAVE) if node else None
            out.append(Finding("kept-on-ctx", -1 if k is None else k, culprit=culprit, names=(attribute, name), detail=harm))
    return out


def has_attributes(context: typing.Any) -> bool:
    return any(_tensors_in(value) for name, value in vars(context).items() if name not in OWN_ATTRIBUTES)


def _tensors_in(value: typing.Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors_in(item)]
    return []


def _applied(bench: Bench, arguments: Arguments) -> tuple[list[torch.Tensor], list, tuple]:
    """A real `apply` on copies: the leaves, what was passed, the outputs."""
    leaves = {k: arguments.values[k].detach().clone().requires_grad_() for k in arguments.checked}
    with torch.enable_grad():
        passed = [
            leaves[k].clone() if k in leaves else v.clone() if isinstance(v, torch.Tensor) else v
            for k, v in enumerate(arguments.values)
        ]
        if bench.random:
            from torchsleuth.checker.randomness import restore_random

            restore_random(bench.state)
        returned = bench.subject.function.apply(*passed)
    return list(leaves.values()), passed, returned if isinstance(returned, tuple) else (returned,)


@torch.enable_grad()
def runs_in_engine(bench: Bench, arguments: Arguments) -> bool:
    """Whether `apply` and a backward pass through autograd's own engine succeed."""
    try:
        leaves, _, results = _applied(bench, arguments)
        tracked = [o for o in results if is_float(o) and o.requires_grad]
        gradients(tracked, leaves, [torch.ones_like(o) for o in tracked])
    except Exception:
        return False
    return bool(tracked)


@torch.enable_grad()
def _overwritten_unseen(bench: Bench, arguments: Arguments, k: int) -> str:
    """Whether writing to input k after forward changes the gradient without an error."""
    try:
        leaves, passed, results = _applied(bench, arguments)
        tracked = [o for o in results if is_float(o) and o.requires_grad]
        if not tracked:
            return ""
        grads = [torch.ones_like(o) for o in tracked]
        before = gradients(tracked, leaves, grads, retain_graph=True)
        with torch.no_grad():
            if passed[k].is_floating_point():
                passed[k].mul_(1.5).add_(0.5)
            elif passed[k].dtype is torch.bool:
                passed[k].logical_not_()
            else:
                passed[k].zero_()
        after = gradients(tracked, leaves, grads)
    except Exception:
        return ""
    changed = any(
        a is not None and b is not None and bool(differing(a, b).any()) for a, b in zip(before, after, strict=True)
    )
    return "overwritten" if changed else ""


@torch.enable_grad()
def _leaks(bench: Bench, arguments: Arguments, position: int) -> str:
    """Whether the output outlives its last reference."""
    try:
        with uncollected():
            results = _applied(bench, arguments)[2]
            reference = weakref.ref(results[position])
            del results
            return "leak" if reference() is not None else ""
    except Exception:
        return ""
