"""The other derivatives and transforms a Function may define: `jvp`, `vmap`, and use under autocast."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad
from torch.autograd.function import Function

from torchsleuth.checker import source
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, is_float
from torchsleuth.checker.second import culprit_of_exception, described
from torchsleuth.checker.subject import Run
from torchsleuth.checker.trial import Finding, Relation
from torchsleuth.checker.truth import differing, scales
from torchsleuth.checker.variants import randn
from torchsleuth.model import Role

BATCH = 3


def has_jvp(bench: Bench) -> bool:
    return bench.subject.function.jvp is not Function.jvp


def has_vmap(bench: Bench) -> bool:
    function = bench.subject.function
    return function.vmap is not Function.vmap or bool(getattr(function, "generate_vmap_rule", False))


@torch.enable_grad()
def jvp(bench: Bench, evaluation: Evaluation) -> list[Finding]:
    """Forward-mode derivatives against differences of forward."""
    arguments = evaluation.arguments
    sizes = scales(arguments)
    moves = {k: randn(arguments.values[k], bench.generator) * sizes[k] for k in arguments.checked}
    method = source.method_of(bench.subject.function.jvp, f"{bench.subject.name}.jvp")
    node = source.return_statement(method) if method else None
    culprit = source.culprit_of(method, node, "the tangent jvp returns", Role.RETURN_GRAD) if node is not None else None
    try:
        with forward_ad.dual_level():
            passed = [
                # A Function that works in place may write into the tangent too.
                forward_ad.make_dual(v.clone(), moves[k].clone()) if k in moves else v for k, v in enumerate(arguments.values)
            ]
            returned = bench.subject.function.apply(*passed)
            results = returned if isinstance(returned, tuple) else (returned,)
            tangents = [forward_ad.unpack_dual(o).tangent if is_float(o) else None for o in results]
            tangents = [None if t is None else t.detach().clone() for t in tangents]
    except Exception as error:
        where = culprit_of_exception(error, bench.subject.name, "raises") or culprit
        return [Finding("jvp", culprit=where, exception=described(error), detail="raises")]
    true = bench.changes(arguments, moves, 1e-6)
    for position, (got, want) in enumerate(zip(tangents, true, strict=True)):
        if want is None:
            continue
        got = torch.zeros_like(want) if got is None else got
        if not bool(differing(got, want, 1e-4).any()):
            continue
        finer = bench.changes(arguments, moves, 1e-7)[position]
        wrong = differing(got, want, 1e-4) & ~differing(finer, want, 1e-3)
        if not bool(wrong.any()):
            continue
        square = float((want * want).sum())
        factor = float((got * want).sum()) / square if square else 0.0
        relation = Relation("factor", factor=factor) if square and not bool(differing(got, factor * want, 1e-4).any()) else None
        count = sum(map(is_float, evaluation.run.outputs))
        if method is not None and count > 1 and (node := source.returned_expression(method, position, len(true))) is not None:
            culprit = source.culprit_of(method, node, f"the tangent of output {position}", Role.RETURN_GRAD)
        return [Finding("jvp", culprit=culprit, relation=relation, returned_count=position, expected_count=count, detail="values",
                        error=float((got - want).norm()) / max(float(want.norm()), 1e-300))]  # fmt: skip
    return []


@torch.enable_grad()
def vmap(bench: Bench, arguments: Arguments) -> list[Finding]:
    """`torch.vmap` over the Function against a loop, for several choices of the mapped dimension."""
    if bench.random:
        return []
    floats = [k for k in arguments.checked if arguments.values[k].numel()]
    if not floats:
        return []
    defined = bench.subject.function.vmap
    method = source.method_of(defined, f"{bench.subject.name}.vmap") if defined is not Function.vmap else None
    node = source.return_statement(method) if method else None
    culprit = source.culprit_of(method, node, "what vmap returns", Role.CREATE) if node is not None else None
    choices: list[dict[int, int]] = [{k: 0 for k in floats}]
    choices += [{k: 0} for k in floats if len(floats) > 1]
    choices += [{k: arguments.values[k].ndim for k in floats}] if all(arguments.values[k].ndim for k in floats) else []
    for dims in choices:
        stacked = {
            k: torch.stack([arguments.values[k] * (1 + 0.1 * n) for n in range(BATCH)], dim=dims[k]) for k in dims
        }
        passed = [stacked.get(k, v) for k, v in enumerate(arguments.values)]
        tensors = [k for k, v in enumerate(arguments.values) if isinstance(v, torch.Tensor)]

        def called(*mapped, passed=passed, tensors=tensors):
            full = list(passed)
            for k, value in zip(tensors, mapped, strict=True):
                full[k] = value
            return bench.subject.function.apply(*full)

        text = ", ".join(f"{arguments.names[k]} along {d}" for k, d in dims.items())
        try:
            loop = []
            for n in range(BATCH):
                one = arguments.with_values(stacked[k].select(dims[k], n) if k in dims else v for k, v in enumerate(arguments.values))
                loop.append(bench.forward(one).outputs)
        except Exception:
            continue
        try:
            got = torch.vmap(called, in_dims=tuple(dims.get(k) for k in tensors))(*[passed[k] for k in tensors])
        except Exception as error:
            where = culprit_of_exception(error, bench.subject.name, "raises") or culprit
            return [Finding("vmap", culprit=where, exception=described(error), detail="raises", case_text=text)]
        got = got if isinstance(got, tuple) else (got,)
        for position, result in enumerate(got):
            if not is_float(result):
                continue
            want = torch.stack([outputs[position] for outputs in loop])
            if want.shape != result.shape or bool(differing(result, want).any()):
                return [Finding("vmap", culprit=culprit, detail="values", case_text=text, returned_count=position,
                                returned_shape=tuple(result.shape), expected_shape=tuple(want.shape))]  # fmt: skip
    return []


def in_float32(arguments: Arguments) -> Arguments:
    return arguments.with_values([v.float() if is_float(v) else v for v in arguments.values])


def under_autocast(bench: Bench, short: Arguments, grads: tuple | None) -> Evaluation | Exception:
    """A pass as a training step has it: forward inside autocast (bfloat16), backward outside; or what forward raises there."""
    device = short.values[short.checked[0]].device.type
    try:
        with torch.autocast(device, dtype=torch.bfloat16):
            run = bench.forward(short)
    except Exception as error:
        return error
    return bench.evaluate(short, grads_for(run, grads), run=run, spent=True)


def grads_for(run: Run, grads: tuple | None) -> tuple:
    """Copies of the grads in the types of the outputs; ones where there are none."""
    if grads is None:
        return tuple(torch.ones_like(o) if run.carries_gradient(o) else None for o in run.outputs)
    return tuple(g if g is None else g.to(o.dtype, copy=True) for g, o in zip(grads, run.outputs, strict=True))


def autocast(bench: Bench, evaluation: Evaluation) -> tuple[list[Finding], str]:
    """Use under autocast: does backward get along with the types it meets?"""
    problem = next((p for p in evaluation.problems if p.kind == "raises"), None)
    if problem is None:
        return [], ""
    marks = [_marked(getattr(bench.subject.function, name)) for name in ("forward", bench.subject.backward_name)]
    if not any(marks):
        return [], described(problem.exception)
    culprit = culprit_of_exception(problem.exception, bench.subject.name, "raises")
    lacking = "custom_bwd on backward" if marks[0] and not marks[1] else "custom_fwd on forward" if not marks[0] else ""
    return [Finding("autocast", exception=described(problem.exception), culprit=culprit, detail=lacking)], ""


def for_another_device(bench: Bench, arguments: Arguments) -> bool:
    """`custom_fwd(device_type="cuda")` does nothing under the CPU's autocast, and was not written for it."""
    device = arguments.values[arguments.checked[0]].device.type
    marks = [_marked(getattr(bench.subject.function, name)) for name in ("forward", bench.subject.backward_name)]
    return all(marks) and not marks[0] | marks[1] <= {device, ""}


def _marked(function) -> set[str]:
    """The devices that torch.amp.custom_fwd or custom_bwd on a method are for (`""` where that is not known); none where it carries none."""
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename.endswith(("amp/autocast_mode.py", "amp\\autocast_mode.py")):
            kept = dict(zip(code.co_freevars, (c.cell_contents for c in function.__closure__ or ()), strict=False))
            return {kept.get("device_type", "")}
        function = getattr(function, "__wrapped__", None)
    return set()
