"""What is offered where a device is not here: where it is chosen, or where the file is read."""

import zipfile

import pytest
import torch
from forward_harness import run_program

from torchsleuth.fixes.fixer import proposals
from torchsleuth.fixes.script import Scripts

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU runs these programs to their end")


def _fixed(program: str) -> str | None:
    result = run_program(program)
    found = proposals(result.diagnosis, result.evidence, Scripts(lambda path: program.encode() if path == result.filename else None))
    if not found:
        return None
    lines = program.split("\n")
    for edit in sorted(found[0].edits, key=lambda edit: -edit.span.line):
        assert edit.span.line == edit.span.end_line
        line = lines[edit.span.line - 1]
        lines[edit.span.line - 1] = line[: edit.span.column - 1] + edit.replacement + line[edit.span.end_column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
@pytest.mark.parametrize("text", [
    'import torch\nx = torch.zeros(3, device={})\n',
    'import torch\nd = {}\nx = torch.zeros(3).to(d)\n',
    'import torch\nclass Run:\n    def __init__(self):\n        self.device = torch.device({})\nrun = Run()\nnet = torch.nn.Linear(2, 2).to(run.device)\n',
    'import torch\nclass Net(torch.nn.Module):\n    def __init__(self, size, device={}):\n        super().__init__()\n        self.w = torch.nn.Parameter(torch.zeros(size, device=device))\nNet(3)\n',
    'import torch as t\ndef main(device={}):\n    return t.ones(2).to(device)\nmain()\n',
])  # fmt: skip
def test_it_is_chosen_while_the_program_runs(text, device):
    fixed = _fixed(text.format(f'"{device}"'))
    assert fixed is not None and f'"{device}" if t' in fixed
    exec(compile(fixed, "fixed", "exec"), {"__name__": "fixed"})


def test_a_file_is_brought_to_the_cpu(tmp_path):
    saved, path = tmp_path / "saved.pt", tmp_path / "moved.pt"
    torch.save({"w": torch.zeros(3)}, saved)
    _as_if_from_a_gpu(saved, path)
    fixed = _fixed(f"import torch\nstate = torch.load({str(path)!r}, weights_only=True)\n")
    assert fixed is not None and 'map_location="cpu"' in fixed
    exec(compile(fixed, "fixed", "exec"), {"__name__": "fixed"})


def _as_if_from_a_gpu(saved, path):
    """The same file with its tensors on "cuda", as a machine with a GPU would have written it."""
    with zipfile.ZipFile(saved) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            made.writestr(name, data.replace(b"X\x03\x00\x00\x00cpu", b"X\x04\x00\x00\x00cuda") if name.endswith("data.pkl") else data)
