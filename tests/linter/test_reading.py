"""What the linter reads by: the table of kept tensors, installed packages, the seeds, a fixed amount of nonsense."""

from __future__ import annotations

import importlib.util
import io
import random
import re
import tokenize
from pathlib import Path

import pytest
import torch

from tests.linter.loop_forms import forms, left_alone
from torchsleuth.linter.engine import lint_rules, linted
from torchsleuth.linter.saved_table import SAVED, TORCH_VERSION
from torchsleuth.linter.source import Unreadable, source_from
from torchsleuth.linter.sweep import linted_text

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"

# (call, operator, what it keeps when the first tensor requires a gradient)
KEPT = [
    (lambda x: x**2, "pow/number"), (torch.exp, "exp"), (torch.log, "log"), (torch.sigmoid, "sigmoid"), (torch.tanh, "tanh"),
    (torch.sqrt, "sqrt"), (torch.relu, "relu"), (torch.sin, "sin"), (lambda x: x + 1, "add/number"), (lambda x: x * 2.0, "mul/number"),
    (torch.sum, "sum"), (torch.min, "min"), (torch.max, "max"), (torch.abs, "abs"), (lambda x: torch.softmax(x, 0), "softmax"),
    (torch.nn.functional.gelu, "gelu"), (torch.neg, "neg"), (torch.square, "square"), (torch.rsqrt, "rsqrt"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "name"), KEPT, ids=[n for _, n in KEPT])
def test_the_table_agrees_with_the_installed_torch(function, name: str) -> None:
    """By behaviour, not by attribute: writing into what the table says is kept raises, writing into the rest does not."""
    for written, key in (("input", 0), ("result", "r")):
        leaf = torch.rand(3) + 1
        leaf.requires_grad_()
        x = leaf * 1
        y = function(x)
        out = y * 1
        (x if written == "input" else y).detach().zero_()
        try:
            out.sum().backward()
            raised = False
        except RuntimeError:
            raised = True
        assert raised == (key in SAVED[name][0]), (name, written, TORCH_VERSION)


def test_a_sample_of_installed_packages_is_read_without_failing(monkeypatch) -> None:
    monkeypatch.setenv("TORCHSLEUTH_DEBUG", "1")
    files = []
    for package in ("torch", "transformers"):
        found = importlib.util.find_spec(package)
        if found is not None:
            files += sorted(Path(found.origin).parent.rglob("*.py"))
    sample = random.Random(3).sample(files, min(150, len(files)))
    for file in sample:
        linted_text(file.read_bytes(), ".py")


def mutated(text: str, chooser: random.Random) -> str | None:
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    words = ["x", "i", "0", "-1", ":", "None", "...", "*", "@", "+=", "row", "dim=0", "torch.stack", "x[i]", ""]
    for _ in range(chooser.randint(1, 3)):
        place = chooser.randrange(20, len(tokens) - 2)
        if tokens[place].type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP):
            tokens[place] = tokens[place]._replace(string=chooser.choice([chooser.choice(words), tokens[chooser.randrange(20, len(tokens) - 2)].string.strip()]))
    try:
        return tokenize.untokenize([(t.type, t.string) for t in tokens])
    except (ValueError, IndexError):
        return None


def test_nonsense_is_read_without_failing(monkeypatch) -> None:
    monkeypatch.setenv("TORCHSLEUTH_DEBUG", "1")
    texts = [t for _, t in forms() + left_alone()]
    texts += [p.read_text(encoding="utf-8") for p in (Path(__file__).parents[1] / "rules" / "source" / "programs").glob("*.py")]
    chooser = random.Random(7)
    read = 0
    for _ in range(1400):
        text = mutated(chooser.choice(texts), chooser)
        if text is None:
            continue
        try:
            source = source_from(text.encode(), "nonsense.py")
        except Unreadable:
            continue
        linted(source)
        read += 1
    assert read > 200


# Block -> the rules and lines lint should report; the rest of the 19 blocks: nothing.
VERDICTS = {
    "001_5": {("loop-over-tensor", 15)}, "001_6": {("loop-over-tensor", 15)}, "002_1": {("loop-over-tensor", 6)},
    "003_1": {("inplace-over-saved", 11)}, "003_2": {("loop-over-tensor", 6)}, "003_3": {("loop-over-tensor", 5)},
    "004_1": {("leaf-written-in-place", 13)}, "004_2": {("leaf-written-in-place", 17)}, "004_3": {("leaf-written-in-place", 16)},
}  # fmt: skip


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed documents lie beside the repository, and are not there")
def test_the_seeds_get_the_right_verdict() -> None:
    seen = 0
    for document in sorted(SEEDS.glob("*.txt")):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.S), 1):
            key = f"{document.name[:3]}_{number}"
            found = {(d.rule, d.culprits[0].span.line) for d in linted(source_from(block.encode(), f"{key}.py")).diagnoses}
            assert found == VERDICTS.get(key, set()), key
            seen += 1
    assert seen == 19


def test_rules_are_named_once() -> None:
    names = [rule.name for rule in lint_rules()]
    assert len(names) == len(set(names)) and len(names) >= 30
