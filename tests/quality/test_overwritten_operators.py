"""PyTorch's own operator database as the author of programs: overwrite what an operator saved, in many ways.

For each differentiable operator with sample inputs a program calls it, overwrites an input or the result, and calls
backward. Wherever PyTorch raises the version error, torchsleuth must name the line that wrote and the line that saved,
and no other line. Nobody here chose the operators or the inputs.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from torchsleuth import source
from torchsleuth.capture.collect import collect
from torchsleuth.capture.crash import Crash
from torchsleuth.diagnose import diagnose
from torchsleuth.record.recorder import Recorder

# {write} is one of the ways below; `t` is the tensor to overwrite.
PROGRAM = """\
def forward(op, args, kwargs):
    return op(*args, **kwargs)


def overwrite(t):
    {write}


def total(result):
    parts = result if isinstance(result, (tuple, list)) else [result]
    parts = [p for p in parts if isinstance(p, torch.Tensor) and p.requires_grad]
    return sum((torch.view_as_real(p) if p.is_complex() else p).sum() for p in parts)


def main(op, args, kwargs, pick):
    result = forward(op, args, kwargs)
    loss = total(result)
    overwrite(pick(args, result))
    loss.backward()
"""
SAVE_LINE, WRITE_LINE = 2, 6
WAYS = (
    "t += 1",
    "t.mul_(2)",
    "t[...] = 0",
    "t.data; t.zero_()",
    "torch.no_grad()(lambda: t.add_(1))()",
    "torch.no_grad()(torch.add)(t, 1, out=t)",
    "t.copy_(torch.ones_like(t))",
    "[v.fill_(3) for v in (t.view_as(t),)]",
)
PER_OPERATOR = 3  # programs for each operator and target


class Score:
    def __init__(self) -> None:
        self.raised = self.named = self.silent = 0
        self.wrong: list[str] = []
        self.missed: list[str] = []


def _programs(op):
    """(args, kwargs, pick, label) with fresh tensors: leaves wrapped so that they may be written in place."""
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), PER_OPERATOR))
    except Exception:
        return
    for sample in samples:
        values = (sample.input, *sample.args)
        targets = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.requires_grad]
        for target in [*targets[:2], -1]:
            try:
                args = tuple(v.clone() if isinstance(v, torch.Tensor) and v.requires_grad else v for v in values)
            except Exception:
                continue
            yield args, sample.kwargs, target


def _pick(target):
    def pick(args, result):
        if target >= 0:
            return args[target]
        parts = result if isinstance(result, (tuple, list)) else [result]
        return next(p for p in parts if isinstance(p, torch.Tensor) and p.requires_grad)

    return pick


def _score(operators, exact_seconds) -> Score:
    score = Score()
    ways = itertools.cycle(WAYS)
    for op in operators:
        for args, kwargs, target in _programs(op):
            way = next(ways)
            _run(op, args, kwargs, target, way, exact_seconds, score)
    return score


def _run(op, args, kwargs, target, way, exact_seconds, score) -> None:
    filename = f"<program {score.raised} {score.silent}>"
    text = PROGRAM.format(write=way)
    source.forget()
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope = {"torch": torch}
    exec(compile(text, filename, "exec"), scope)
    recorder = Recorder(1 << 12, exact_seconds)
    recording = recorder.start()
    error = None
    try:
        scope["main"](op.op, args, kwargs, _pick(target))
    except Exception as caught:
        error = caught
    recorder.stop()
    if error is None or "modified by an inplace operation" not in str(error):
        score.silent += 1
        return
    score.raised += 1
    crash = Crash(error, recording)
    diagnoses, _ = diagnose(type(error).__name__, str(error), lambda needs: collect(crash, needs))
    label = f"{op.name} input {target} by `{way}`"
    found = {(c.role.value, c.span.line) for d in diagnoses for c in d.culprits if c.span.file == filename}
    if found == {("mutate", WRITE_LINE), ("save", SAVE_LINE)}:
        score.named += 1
    elif found - {("mutate", WRITE_LINE), ("save", SAVE_LINE)}:
        score.wrong.append(f"{label}: {sorted(found)}")
    else:
        score.missed.append(f"{label}: {sorted(found)}")


def _operators(every: int):
    usable = [op for op in op_db if op.supports_autograd and torch.float64 in op.dtypes and not op.name.startswith("to_sparse")]
    return usable[::every]


@pytest.mark.parametrize(("exact_seconds", "every", "threshold"), [(60.0, 2, 0.95), (0, 5, 0.95)], ids=["log", "ring only"])
def test_both_lines_are_named_for_the_operators_of_op_db(exact_seconds, every, threshold, capsys) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = _score(_operators(every), exact_seconds)
    with capsys.disabled():
        mode = "operation log" if exact_seconds else "ring only"
        print(
            f"\nop_db, {mode}, Python {sys.version_info[0]}.{sys.version_info[1]}: {score.raised} programs raised the version "
            f"error; both lines named in {score.named}, missed {len(score.missed)}, wrong {len(score.wrong)}"
        )
    assert score.raised > 50
    assert not score.wrong, "\n".join(score.wrong[:20])
    assert score.named >= threshold * score.raised, "\n".join(score.missed[:20])
