"""What goes wrong inside a library, by what the program handed to it: the program's own line comes first, and the library's after it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIBRARY = """
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    @torch.inference_mode()
    def encode(self, x):
        return self.layer(x).clone()


class Trainer:
    def __init__(self, model, criterion):
        self.model, self.criterion = model, criterion
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(self, predicted, wanted):
        return self.criterion(predicted, wanted)

    def train(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            self.loss(self.model(x), y).backward()
            self.optimizer.step()
"""


def _diagnoses(folder: Path, program: str) -> list[dict]:
    library = folder / "site-packages" / "trainers.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    script = folder / "main.py"
    script.write_text("import sys\nsys.path.insert(0, 'site-packages')\nimport torch\nfrom torch import nn\nimport trainers\n" + program)
    command = [sys.executable, "-m", "torchsleuth", "run", "--audit", "--json", "report.json", "main.py"]
    subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return json.loads((folder / "report.json").read_text())["diagnoses"]


def test_calls_that_a_library_runs_without_recording(tmp_path):
    program = "encoder = trainers.Encoder()\na = encoder.encode(torch.ones(2, 4))\nb = encoder.encode(torch.zeros(2, 4))\n(a - b).sum().backward()\n"
    (found,) = _diagnoses(tmp_path, program)
    assert found["rule"] == "lost-gradient"
    culprits = [(c["role"], Path(c["file"]).name, c["line"]) for c in found["culprits"]]
    assert set(culprits[:2]) == {("call", "main.py", 7), ("call", "main.py", 8)}, culprits
    assert ("lost-grad", "trainers.py", 11) in culprits[2:], culprits


def test_targets_that_a_trainer_hands_to_a_loss(tmp_path):
    program = "x = torch.randn(8, 4)\nmodel = nn.Linear(4, 1)\ntrainers.Trainer(model, nn.MSELoss()).train([(x, x.sum(1)), (x, x.sum(1))])\n"
    (found,) = _diagnoses(tmp_path, program)
    assert found["rule"] == "silent-broadcast"
    assert [(Path(c["file"]).name, c["line"]) for c in found["culprits"]][0] == ("main.py", 8)
    assert "[8, 1] and [8]" in found["title"]


def test_targets_of_the_right_shape(tmp_path):
    program = "x = torch.randn(8, 4)\nmodel = nn.Linear(4, 1)\ntrainers.Trainer(model, nn.MSELoss()).train([(x, x.sum(1, keepdim=True))] * 2)\n"
    assert _diagnoses(tmp_path, program) == []
