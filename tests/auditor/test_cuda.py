"""The planted bugs, their twins and the correct models again on a CUDA device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

CODE = """
import sys, torch
sys.path.insert(0, {here!r})
import planted, sequences_zoo, steps_zoo, correct_zoo, architectures, torchsleuth
torch.set_default_device("cuda")
for zoo in (sequences_zoo, steps_zoo, correct_zoo):
    for name, value in list(vars(zoo).items()):
        if isinstance(value, torch.Tensor):
            setattr(zoo, name, value.cuda())
wrong = []
for case in planted.ALL:
    if case.name == "through-numpy":
        continue
    for bug in (True, False):
        torch.manual_seed(3)
        report = torchsleuth.audit(**case.build(bug))
        rules, lines = {{d.rule for d in report.diagnoses}}, {{c.span.line for d in report.diagnoses for c in d.culprits}}
        if bug and (rules != {{case.rule}} or (case.lines and not lines & case.lines)) or not bug and rules:
            wrong.append((case.name, bug, rules, lines, report.notes, report.exception))
for name, build in [*correct_zoo.CORRECT.items(), *architectures.ARCHITECTURES.items()]:
    torch.manual_seed(5)
    made = build()
    if isinstance(made, dict):
        report = torchsleuth.audit(**made)
    else:
        report = torchsleuth.audit(*made)
        with torch.autocast("cuda", dtype=torch.float16):
            more = torchsleuth.audit(*made)
            if more.diagnoses:
                wrong.append((name, "autocast", [(d.rule, d.title, d.facts) for d in more.diagnoses]))
    if report.diagnoses:
        wrong.append((name, [(d.rule, d.title, d.facts) for d in report.diagnoses]))
    if any("not be tested" in n for n in report.notes):
        wrong.append((name, report.notes))
print(*wrong, sep="\\n")
print("wrong:", len(wrong))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_everything_again_on_cuda():
    done = subprocess.run([sys.executable, "-c", CODE.format(here=str(HERE))], capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.stdout.strip().endswith("wrong: 0"), done.stdout[-6000:] + done.stderr[-2000:]
