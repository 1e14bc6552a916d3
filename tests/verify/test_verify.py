"""`torchsleuth run --verify` as a user calls it: what held is said, what did not is not offered, nothing is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OVERWRITTEN = """\
import sys
import helper
import torch

torch.manual_seed(int(sys.argv[1]))
x = torch.randn(3, requires_grad=True)
for step in range(50):
    h = x * 2
    y = h ** 2
    helper.shift(h)
    (y.sum() + h.sum()).backward()
    print("step", step)
"""
HELPER = """\
def shift(t):
    t += 1
    return t
"""


def _run(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess, dict]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHSLEUTH_DEBUG": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torchsleuth", "run", "--json", "report.json", "--verify", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return done, json.loads((folder / "report.json").read_text())


def test_the_verdict_says_what_was_shown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OVERWRITTEN)
    (tmp_path / "helper.py").write_text(HELPER)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done, report = _run(tmp_path, "train.py", "3")
    assert done.returncode == 1
    assert done.stdout == ""  # the re-runs are silent
    fix = report["diagnoses"][0]["fixes"][0]
    assert fix["verdict"]["status"] == "passed", fix
    text = fix["verdict"]["text"]
    assert "line 11 was passed 3 times" in text  # and was stopped then, not after 50
    assert "gradients equal those of the unpatched program" in text
    assert "same value as in the failing run" in text
    assert "Not shown: the rest of the program was not run" in text
    assert "finite differences of the loss agree with the gradients" in text
    assert "goes to the same places" in done.stderr
    for name, data in before.items():
        assert (tmp_path / name).read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} - set(before) <= {"report.json", ".torchsleuth", "__pycache__"}
    # And now apply it, as the report says.
    command = [sys.executable, "-m", "torchsleuth", "fix", "--yes"]
    applied = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert applied.returncode == 0, applied.stderr
    assert (tmp_path / "train.py.orig").read_bytes() == before["train.py"]
    assert (tmp_path / "train.py").read_bytes() != before["train.py"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "has changed since" in again.stderr


REFUTED = """\
import torch

model = torch.nn.Linear(2, 1)
x = torch.ones(4, 2)
for step in range(3):
    h = torch.sigmoid(model(x))
    h += 1
    loss = h.mean()
    loss.backward()
    if h.grad_fn.name() == "AddBackward0" and h._version == 0:
        raise ValueError("I want it in place")
"""


def test_a_refuted_fix_is_not_offered(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REFUTED)
    done, report = _run(tmp_path, "train.py")
    diagnosis = report["diagnoses"][0]
    fix = diagnosis["fixes"][0]
    assert fix["verdict"]["status"] == "passed", done.stderr
    assert "h = h + 1" not in fix["diff"]
    assert any("did not hold" in fact["text"] and "I want it in place" in fact["text"] for fact in diagnosis["facts"])


def test_a_fix_that_leads_to_the_next_mistake_is_said_to_be_right_for_the_first(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import nn\nrnn, head = nn.GRU(4, 6), nn.Linear(5, 2)\nh = rnn(torch.ones(3, 2, 4))\ny = h.mean(0)\nhead(y)\n"
    )
    _, report = _run(tmp_path, "train.py")
    diagnosis = report["diagnoses"][0]
    assert all(fix["verdict"]["status"] != "passed" for fix in diagnosis["fixes"])
    (tried,) = [fact["text"] for fact in diagnosis["facts"] if "did not hold" in fact["text"]]
    assert "line 5 was passed with it" in tried and "at line 6" in tried and "right for the first" in tried


def test_a_program_that_reads_its_input_is_not_verifiable(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(
        "import torch\nn = int(input())\nx = torch.ones(n, requires_grad=True)\nh = x * 2\ny = h ** 2\nh += 1\ny.sum().backward()\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "torchsleuth", "run", "--json", "report.json", "--quiet", "--verify", "ask.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, input="3\n", timeout=240,
    )  # fmt: skip
    report = json.loads((tmp_path / "report.json").read_text())
    verdict = report["diagnoses"][0]["fixes"][0]["verdict"]
    assert verdict["status"] == "not-run"
    assert "standard input" in verdict["text"] and "python ask.py" in verdict["text"]


@pytest.mark.parametrize("module", [True])
def test_modules_with_relative_imports(tmp_path: Path, module: bool) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("import torch\n\n\ndef energy(t):\n    e = t.exp()\n    e *= 2\n    return e.sum()\n")
    (package / "train.py").write_text(
        "import torch\nfrom .model import energy\n\nx = torch.zeros(3, requires_grad=True)\nfor _ in range(2):\n    energy(x).backward()\n"
    )
    done, report = _run(tmp_path, "-m", "pack.train")
    fix = report["diagnoses"][0]["fixes"][0]
    assert "pack/model.py" in fix["diff"]
    assert fix["verdict"]["status"] == "passed", done.stderr
    assert "ran to its end" in fix["verdict"]["text"]


LATE = """\
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sizes = [8] * 6 + [5] + [8] * 20
scored = lambda x, n: model(x).view(n, 3)
for step, n in enumerate(sizes):
    x = torch.randn(n, 4)
    loss = scored(
        x, 8,
    ).pow(2).mean()
    loss.backward()
    opt.step(); opt.zero_grad()
"""


def test_the_visit_that_failed_is_reached(tmp_path: Path) -> None:
    """The first six batches pass without any fix; and a lambda's line is passed where it is called, not where it stands."""
    (tmp_path / "late.py").write_text(LATE)
    done, report = _run(tmp_path, "late.py")
    fix = report["diagnoses"][0]["fixes"][0]
    assert fix["verdict"]["status"] == "passed", done.stderr
    assert "line 10 was passed 9 times without an error, where it had failed the 7th time" in fix["verdict"]["text"]
    assert "(`loss`, `x`)" in fix["verdict"]["text"]
    assert "finite differences of the loss agree" in fix["verdict"]["text"]


CAUGHT = """\
import torch

x = torch.ones(3, requires_grad=True)
for step in range(4):
    h = x * 2
    y = h ** 2
    h += step
    try:
        y.sum().backward()
    except RuntimeError as error:
        print("skipped", step)
"""


def test_an_error_that_the_program_handled_is_verified_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CAUGHT)
    done, report = _run(tmp_path, "--caught", "train.py")
    assert done.returncode == 0
    fix = report["diagnoses"][0]["fixes"][0]
    assert fix["verdict"]["status"] == "passed", done.stderr
    assert "gradients equal those of the unpatched program" in fix["verdict"]["text"]


REFUSED = """\
import torch

x = torch.ones(3, requires_grad=True)
h = x * 2
try:
    y = h ** 2
    h += 1
    if h._version == 0:
        raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: hand-made")
    y.sum().backward()
except RuntimeError as error:
    print("skipped", error)
"""


def test_a_fix_that_only_moves_the_handled_error_is_refuted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REFUSED)
    done, report = _run(tmp_path, "--caught", "train.py")
    diagnosis = report["diagnoses"][0]
    assert all("h = h + 1" not in fix["diff"] or fix["verdict"]["status"] != "passed" for fix in diagnosis["fixes"]), done.stderr


SIZES = "SIDE = 32\n"
NET = """\
import torch
from torch import nn
from sizes import SIDE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.head = nn.MaxPool2d(4), nn.Linear((SIDE // 4) ** 2 * 3, 5)

    def forward(self, x):
        return self.head(self.pool(x).flatten(1))
"""
PICTURES = """\
import torch
from net import Net

net = Net()
for step in range(3):
    net(torch.rand(2, 3, 28, 28)).mean().backward()
"""


def test_a_fix_in_another_file_than_the_failure(tmp_path: Path) -> None:
    for name, text in (("sizes.py", SIZES), ("net.py", NET), ("train.py", PICTURES)):
        (tmp_path / name).write_text(text)
    _, report = _run(tmp_path, "train.py")
    fix = report["diagnoses"][0]["fixes"][0]
    assert "+SIDE = 28" in fix["diff"]
    assert fix["verdict"]["status"] == "passed", fix
    assert "line 12 was passed" in fix["verdict"]["text"]


MAPPED = """\
import torch
from torch.func import grad, vmap

net = torch.nn.Linear(3, 4)


def loss(x, label):
    scores = net(x)
    return torch.nn.functional.cross_entropy(scores, label.unsqueeze(0))


print(vmap(grad(loss))(torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])).shape)
"""


def test_what_has_no_values_under_vmap_refutes_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MAPPED)
    _, report = _run(tmp_path, "train.py")
    fix = report["diagnoses"][0]["fixes"][0]
    assert "cross_entropy(scores.unsqueeze(0), label.unsqueeze(0))" in fix["diff"]
    assert fix["verdict"]["status"] == "passed", fix
