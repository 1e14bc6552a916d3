"""Reproductions: run before they are written, short, plain torch, and failing for the same reason."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from forks import in_fork

from torchsleuth.repro.trial import _matches, _outcome, loose_shape

CRASHES = sorted((Path(__file__).parents[1] / "rules").glob("backward/*/crash_*.py"))
CHOSEN = CRASHES if os.environ.get("TORCHSLEUTH_ALL") else CRASHES[::4]
# What fails in code of the program's own that runs during backward, or depends on how two passes differ, is not put together anew.
FAMILIES_WITHOUT = {"custom_backward_raised", "recomputation_differs"}
NONE_YET = {
    "anomaly_nan/crash_distance",
    "custom_backward_returns/crash_hook_in_a_closure",
    "custom_backward_returns/crash_hook_number",
    "custom_backward_returns/crash_hook_on_a_result",
    "custom_backward_returns/crash_hook_shape",
    "custom_backward_returns/crash_module_hook",
    "nonscalar_backward/crash_function_transform",
    "once_differentiable/crash_penalty",
}


def _candidates(path: Path) -> tuple[dict, list[str]]:
    """How a program failed, and the reproductions that would be tried; run in a child."""
    import torchsleuth.diagnose as stage
    from torchsleuth.options import Options
    from torchsleuth.pipeline import Watch
    from torchsleuth.program import run_script
    from torchsleuth.repro.writing import programs

    found, original = [], stage.diagnose

    def noting(*arguments):
        answer = original(*arguments)
        found.append(answer)
        return answer

    stage.diagnose = noting
    os.chdir(path.parent)
    run_script(path.name, [], Watch(Options(quiet=True)))
    (diagnosis, *_), evidence = found[0]
    exception = evidence.exception
    return {"type": exception.type, "message": exception.message, "rule": diagnosis.rule}, programs(diagnosis, evidence)


def test_most_fixtures_have_a_short_reproduction(capsys: pytest.CaptureFixture[str]) -> None:
    lengths, missing = [], []
    for path in CHOSEN:
        failure, texts = in_fork(_candidates, path)
        with tempfile.TemporaryDirectory() as folder:
            for number, text in enumerate(texts):
                found = in_fork(_outcome, text, os.path.join(folder, f"{number}.py"))
                if found is not None and _matches(found, failure):
                    lengths.append(len(text.splitlines()))
                    imported = {a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}
                    assert {"torch"} <= imported <= {"torch", "copy"}
                    break
            else:
                missing.append(f"{path.parent.name}/{path.stem}")
    with capsys.disabled():
        print(f"\n{len(lengths)} of {len(CHOSEN)} crash fixtures have a reproduction, median {statistics.median(lengths)} lines; none for: {', '.join(missing)}")
    assert {name for name in missing if name.partition("/")[0] not in FAMILIES_WITHOUT} <= NONE_YET
    without = [path for path in CRASHES if path.parent.name in FAMILIES_WITHOUT or f"{path.parent.name}/{path.stem}" in NONE_YET]
    assert len(without) <= 0.2 * len(CRASHES)
    assert statistics.median(lengths) < 25


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n\nfrom helper import secret\n\nweights = torch.randn(4, 5, requires_grad=True)\n"
        "gate = torch.sigmoid(weights * secret)\ngate.mul_(0.5)\ngate.sum().backward()\n"
    )
    (tmp_path / "helper.py").write_text("secret = 3\n")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torchsleuth", "run", "--quiet", "--repro", "repro.py", "train.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    text = (tmp_path / "repro.py").read_text()
    assert "run and checked" in done.stderr
    assert "gate" in text and "[4, 5]" in text and "secret" not in text
    assert 5 <= len(text.splitlines()) <= 40
    (tmp_path / "helper.py").unlink()
    again = subprocess.run([sys.executable, "repro.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "modified by an inplace operation" in again.stderr


def test_nothing_is_written_where_nothing_was_shown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n\nx = torch.ones(2, requires_grad=True)\ny = x * 2\n\n\ndef bad(grad):\n    raise KeyError('gone')\n\n\ny.register_hook(bad)\ny.sum().backward()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torchsleuth", "run", "--quiet", "--repro", "repro.py", "train.py"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert "no reproduction was written" in done.stderr
    assert not (tmp_path / "repro.py").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (4x5 and 6x3)", "mat1 and mat2 shapes cannot be multiplied (2x16 and 32x2)"),
        ("[torch.FloatTensor [3]], which is output 0 of AddBackward0, is at version 1", "[torch.FloatTensor [2, 3]] is at version 4"),
    ],
)
def test_messages_of_one_kind_have_one_shape(one: str, other: str) -> None:
    assert loose_shape(one) == loose_shape(other)
