"""Whole programs under `StepWatch`: each bug found with its line, the same program without it clean, its results untouched."""

from __future__ import annotations

import contextlib
import io
import random
import runpy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from scripts import audit_script  # noqa: E402

from torchsleuth.model import Outcome  # noqa: E402

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
BUGGY = [p for p in PROGRAMS if p.read_text().startswith("# rule:")]


def culprit_lines(text: str) -> set[int]:
    return {n for n, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith("# culprit")}


def audited(path: Path):
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
        report, status = audit_script(str(path))
    return report, status, printed.getvalue()


@pytest.mark.parametrize("path", BUGGY, ids=lambda p: p.stem)
def test_bug_is_found_with_its_line(path):
    text = path.read_text()
    rule, _, exactly = text.splitlines()[0].removeprefix("# rule:").partition(",")
    report, _, _ = audited(path)
    assert {d.rule for d in report.diagnoses} == {rule.strip()}, [(d.rule, d.title, d.culprits[:1]) for d in report.diagnoses]
    named = {c.span.line for d in report.diagnoses for c in d.culprits}
    assert culprit_lines(text) & named, report.diagnoses
    assert not exactly or culprit_lines(text) == named, report.diagnoses  # "# rule: name, exactly": no other line is named
    words = "\n".join(part for d in report.diagnoses for part in (d.title, d.explanation, *(f.text for f in d.facts), *(f.title for f in d.fixes), *(c.label for c in d.culprits)))
    for wanted in (line.removeprefix("# says: ") for line in text.splitlines() if line.startswith("# says: ")):
        assert wanted in words, words


EVERY_LINE = ["statistics_over_padded_frames", "triangle_one_too_wide", "language_model_time_first", "labels_cut_without_a_shift", "lengths_not_subsampled"]


# What is to be changed stands elsewhere than where it shows: it comes first.
COMES_FIRST = ["labels_padded_with_a_class", "mask_not_handed_to_the_second_layer", "mask_one_position_short", "window_open_ahead", "pixels_from_numpy",
               "mask_lengthened_at_the_wrong_end", "mask_of_another_id", "lengths_of_the_padded_rows", "mask_repeated_as_a_whole", "added_mask_that_hides_the_words", "mask_of_a_helper_the_wrong_way_round",
               "mask_filled_row_by_row_the_wrong_way_round", "padding_named_so_and_taken_for_words"]  # fmt: skip


@pytest.mark.parametrize("name", COMES_FIRST)
def test_line_to_change_comes_first(name):
    path = Path(__file__).parent / "programs" / f"{name}.py"
    report, _, _ = audited(path)
    assert [d.culprits[0].span.line for d in report.diagnoses] == sorted(culprit_lines(path.read_text())), report.diagnoses


@pytest.mark.parametrize("name", EVERY_LINE)
def test_every_line_to_change_is_named(name):
    path = Path(__file__).parent / "programs" / f"{name}.py"
    report, _, _ = audited(path)
    assert culprit_lines(path.read_text()) <= {c.span.line for d in report.diagnoses for c in d.culprits}, report.diagnoses


def test_a_decorator_is_named_before_what_stands_under_it():
    report, _, _ = audited(Path(__file__).parent / "programs" / "features_under_decorator.py")
    assert "grad" in report.diagnoses[0].culprits[0].source, report.diagnoses


def test_one_finding_for_what_two_steps_do_with_it():
    report, _, _ = audited(Path(__file__).parent / "programs" / "sigmoid_in_both_steps.py")
    assert len(report.diagnoses) == 1, report.diagnoses


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_correct_program_is_clean_and_undisturbed(path, tmp_path):
    fixed = tmp_path / path.name
    fixed.write_text(path.read_text().replace("BUG = True", "BUG = False"))
    report, status, printed = audited(fixed)
    assert report.outcome is Outcome.OK, [(d.rule, d.title, d.facts, d.culprits[:1]) for d in report.diagnoses]
    assert status == 0
    with contextlib.redirect_stdout(io.StringIO()) as alone:
        left = runpy.run_path(str(fixed), run_name="__main__")
    assert printed == alone.getvalue()
    assert left is not None and random.getstate()


LIBRARY = """
class Fit:
    def __init__(self, model, optimizer, batches):
        self.model, self.optimizer, self.batches = model, optimizer, batches

    def train(self):
        for batch in self.batches:
            self.optimizer.zero_grad()
            self.model(**batch).loss.backward()
            self.optimizer.step()
"""
FITTED = """
import torch
from fitting import Fit
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

def collate(texts):
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": ids, "labels": torch.arange(len(texts)) % 2}

torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16))
texts = [torch.randint(1, 30, (n,)) for n in (9, 6, 4, 7)]
Fit(model, torch.optim.Adam(model.parameters()), DataLoader(texts, 4, collate_fn=collate)).train()
"""


def test_where_a_library_calls_the_model_the_batch_is_what_is_to_be_changed(tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "fitting.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(library)
    (tmp_path / "train.py").write_text(FITTED)
    report, _, _ = audited(tmp_path / "train.py")
    (found,) = report.diagnoses
    assert [c.span.line for c in found.culprits] == [9, 15] and "Put the mask of the padding into the batch" in found.fixes[0].title
