"""Device-side asserts are explained by the line that made them: on a pretended device everywhere, on a real one where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from cases import CASES, Case
from pretend import run_on_pretend_device

HAS_GPU = torch.cuda.is_available()
gpu = pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU; `python -m bench.gpu` runs these on a machine that has one")


def judge(case: Case, report: dict) -> None:
    assert report["outcome"] == "crash"
    (diagnosis,) = report["diagnoses"]
    told = json.dumps(diagnosis, ensure_ascii=False)
    assert diagnosis["rule"] == case.rule, told
    assert diagnosis["confidence"] == "certain"
    assert diagnosis["culprits"][0]["line"] == case.line, told
    for words in case.says:
        assert words in told, (words, told)


@pytest.mark.parametrize("case", [case for case in CASES if not case.gpu_only], ids=lambda case: case.name)
def test_pretended_device(case: Case) -> None:
    run = run_on_pretend_device(case.program("cpu"))
    assert "device-side assert" in run.stderr, run.stderr
    judge(case, run.report)
    assert "first noticed" in run.words()


@gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gpu(case: Case, tmp_path) -> None:
    judge(case, report_on_gpu(case.program("cuda"), tmp_path))


def report_on_gpu(program: str, folder, *options: str, same: bool = True) -> dict:
    """The report; `same`: and output and exit status are those of the program without torchsleuth."""
    script, report, errors = folder / "main.py", folder / "report.json", folder / "stderr"
    script.write_text(program)
    command = [sys.executable, "-m", "torchsleuth", "run", "--json", str(report), *options, str(script)]
    with errors.open("w") as stderr:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, "TORCHSLEUTH_DEBUG": "1"})
    assert report.exists(), errors.read_text()[-3000:]
    if same:
        plain = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == plain.returncode and done.stdout == plain.stdout, errors.read_text()[-3000:]
    return json.loads(report.read_text())
