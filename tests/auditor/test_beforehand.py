"""Inputs that were made before `torchsleuth.audit` was called: the line is named where syntax leaves one reading, and no line where it does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import torchsleuth
from torchsleuth import cli
from torchsleuth.model import Role

_HEAD = """
import torch, torchsleuth
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 8, padding_idx=0)
        self.config = {"model_type": "words"}  # of a library's kind: everybody knows what its attention_mask means

    def forward(self, ids, attention_mask=None):
        h = self.table(ids)
        if attention_mask is not None:
            h = h * attention_mask.unsqueeze(-1)
        return h.sum(1)

ids = torch.tensor([[3, 4, 5, 6, 7, 8], [7, 8, 9, 0, 0, 0], [2, 9, 4, 5, 0, 0]])
PAD = 0
"""

# Each function makes a mask that hides the words; "# made" marks the line that decides what it holds.
_NAMED = {
    "a name": """
def report():
    mask = ids == PAD  # made
    return torchsleuth.audit(Words(), {"ids": ids, "attention_mask": mask.long()})
""",
    "names of names, converted": """
def report():
    hidden = torch.eq(ids, PAD)  # made
    mask = hidden.to(torch.int64)
    batch = dict(ids=ids, attention_mask=mask)
    return torchsleuth.audit(Words(), batch)
""",
    "stored under a key": """
def report():
    batch = {"ids": ids}
    batch["attention_mask"] = (ids == PAD).long()  # made
    return torchsleuth.audit(Words(), batch)
""",
    "what a function returns": """
def collate(rows):
    keep = rows != PAD
    return {"ids": rows, "attention_mask": 1 - keep.long()}  # made

def report():
    batch = collate(ids)
    return torchsleuth.audit(batch=batch, model=Words())
""",
    "one of several results": """
def load():
    mask = (ids == PAD).long()  # made
    return ids, mask

def report():
    rows, mask = load()
    return torchsleuth.audit(Words(), (rows, mask))
""",
    "a method": """
class Corpus:
    def mask(self, rows):
        return (rows == PAD).long()  # made

def report():
    corpus = Corpus()
    return torchsleuth.audit(Words(), {"ids": ids, "attention_mask": corpus.mask(ids)})
""",
    "filled in a loop": """
def report():
    mask = torch.zeros(3, 6, dtype=torch.long)
    for row, length in enumerate((6, 3, 4)):
        mask[row, length:] = 1  # made
    return torchsleuth.audit(Words(), (ids, mask))
""",
    "a helper of the test's": """
def audited(batch):
    return torchsleuth.audit(Words(), batch)

def report():
    mask = (ids == PAD).long()  # made
    return audited({"ids": ids, "attention_mask": mask})
""",
    "the module's own": """
MASK = (ids == PAD).long()  # made

def report():
    return torchsleuth.audit(Words(), (ids, MASK))
""",
    "bound twice, one after the other": """
def report():
    mask = torch.ones_like(ids)
    mask = (ids == PAD).long()  # made
    return torchsleuth.audit(Words(), (ids, mask))
""",
}
_NOT_NAMED = {
    "one of two branches": """
def report(turned=True):
    if turned:
        mask = (ids == PAD).long()
    else:
        mask = (ids != PAD).long()
    return torchsleuth.audit(Words(), (ids, mask))
""",
    "a generator's": """
def batches():
    yield ids, (ids == PAD).long()

def report():
    for rows, mask in batches():
        return torchsleuth.audit(Words(), (rows, mask))
""",
    "a module's, bound twice": """
MASK = torch.ones_like(ids)

def report():
    return torchsleuth.audit(Words(), (ids, MASK))

MASK = (ids == PAD).long()
""",
    "made in a branch that may not have run": """
def report(turned=True):
    mask = (ids == PAD).long()
    if not turned:
        mask = 1 - mask
    return torchsleuth.audit(Words(), (ids, mask))
""",
}


def _module(tmp_path: Path, text: str, name: str):
    path = tmp_path / f"{name}.py"
    path.write_text(_HEAD + text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module, path.read_text().splitlines()


def _creators(report: torchsleuth.model.Report) -> list[int]:
    (found,) = (d for d in report.diagnoses if d.rule == "suspicious-input")
    return [c.span.line for c in found.culprits if c.role is Role.CREATE]


@pytest.mark.parametrize("kind", _NAMED)
def test_the_line_that_made_an_input_is_named(kind: str, tmp_path: Path) -> None:
    module, lines = _module(tmp_path, _NAMED[kind], "made_before")
    assert [lines[line - 1].endswith("# made") for line in _creators(module.report())] == [True]


@pytest.mark.parametrize("kind", _NOT_NAMED)
def test_where_two_lines_may_have_made_it_none_is_named(kind: str, tmp_path: Path) -> None:
    module, _ = _module(tmp_path, _NOT_NAMED[kind], "made_before")
    assert _creators(module.report()) == []


def test_of_a_function_that_the_command_audits(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given.py").write_text(_HEAD + "def make():\n    mask = (ids == PAD).long()  # made\n    return Words(), {'ids': ids, 'attention_mask': mask}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    cli.main(["audit", "given.py:make"])
    said = capsys.readouterr().err
    assert "(ids == PAD).long()  # made" in said and "`attention_mask` is made here" in said


_CAUSAL = """
class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 8), nn.Linear(8, 40)

    def forward(self, ids, labels):
        scores = self.out(self.table(ids).cumsum(1))
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)

tokens = torch.randint(1, 40, (3, 12))
"""


@pytest.mark.parametrize(
    "made",
    [
        "labels = nn.functional.pad(tokens[:, 1:], (0, 1), value=-100)  # made",
        "ahead = tokens[:, 1:]  # made\n    labels = torch.cat([ahead, torch.full((3, 1), -100)], 1)",
        "moved = tokens.roll(-1, 1)  # made\n    labels = moved.masked_fill(moved == tokens[:, :1], -100)",
    ],
)
def test_labels_that_were_shifted_before(made: str, tmp_path: Path) -> None:
    text = f'{_CAUSAL}\ndef report():\n    {made}\n    return torchsleuth.audit(Next(), {{"ids": tokens, "labels": labels}})\n'
    module, lines = _module(tmp_path, text, "shifted_before")
    found = next(d for d in module.report().diagnoses if d.rule == "label-shift")
    before = [c.span.line for c in found.culprits if not lines[c.span.line - 1].strip().startswith("return nn.")]
    assert [lines[line - 1].endswith("# made") for line in before] == [True], found


_COPIED = {
    "given with the batch": """
def report():
    labels = ids.clone()  # made
    return torchsleuth.audit(Tag(), (ids, labels), loss_fn=nn.CrossEntropyLoss())
""",
    "known to the loss": """
def report():
    labels = ids.clone()  # made
    return torchsleuth.audit(Tag(), ids, loss_fn=lambda out: nn.functional.cross_entropy(out, labels))
""",
    "a global of the loss's": """
LABELS = ids.clone()  # made

def loss(out):
    return nn.functional.cross_entropy(out, LABELS)

def report():
    return torchsleuth.audit(Tag(), ids, loss_fn=loss)
""",
    "known to a loss that a function makes": """
def report():
    labels = ids.clone()  # made

    def loss(out):
        return nn.functional.cross_entropy(out, labels)

    return torchsleuth.audit(Tag(), ids, loss_fn=loss)
""",
}


@pytest.mark.parametrize("kind", _COPIED)
def test_labels_that_are_a_copy_were_made_by_the_copy(kind: str, tmp_path: Path) -> None:
    text = """
class Tag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 8, padding_idx=0), nn.Linear(8, 40)

    def forward(self, ids):
        return self.out(self.table(ids)).transpose(1, 2)
"""
    module, lines = _module(tmp_path, text + _COPIED[kind], "copied_before")
    (found,) = (d for d in module.report().diagnoses if d.rule == "padding-in-loss")
    assert "ids.clone()  # made" in " ".join(lines[c.span.line - 1] for c in found.culprits), found
