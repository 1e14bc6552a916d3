"""Evidence is plain data: it survives JSON, keeps no live object, and the crash's frames are let go."""

from __future__ import annotations

import gc
import json
import linecache
import weakref
from pathlib import Path

import pytest
import torch
from programs import run_program

from torchsleuth.capture.collect import collect
from torchsleuth.capture.crash import Crash
from torchsleuth.diagnose import nominated
from torchsleuth.evidence import Evidence
from torchsleuth.model import from_plain, to_plain
from torchsleuth.record.recorder import Recorder

FIXTURES = sorted((Path(__file__).parents[1] / "rules" / "backward").glob("*/crash_*.py"))[::4]


def _evidence(path: Path) -> Evidence:
    text = path.read_text()
    linecache.cache.pop(str(path), None)
    recorder = Recorder(1 << 14, 60.0)
    recording = recorder.start()
    try:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    except Exception as error:
        recorder.stop()
        crash = Crash(error, recording)
        needs = [need for rule in nominated(type(error).__name__, str(error)) for need in rule.needs]
        return collect(crash, needs)
    finally:
        recorder.stop()
        torch.set_grad_enabled(True)  # one of the fixtures leaves it off, and this process goes on
    raise AssertionError("the fixture did not fail")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_evidence_survives_json(path: Path) -> None:
    evidence = _evidence(path)
    assert from_plain(Evidence, json.loads(json.dumps(to_plain(evidence)))) == evidence


def test_nothing_of_the_crash_is_kept() -> None:
    refs = []

    def fail():
        x = torch.ones(3, requires_grad=True)
        h = x.exp()
        refs.append(weakref.ref(h))
        h += 1
        h.sum().backward()

    recorder = Recorder(1 << 14, 60.0)
    recording = recorder.start()
    try:
        fail()
    except RuntimeError as error:
        recorder.stop()
        evidence = collect(Crash(error, recording), ["stale"])
    finally:
        recorder.stop()
    assert evidence.stale
    gc.collect()
    assert refs[0]() is None


def test_a_caught_error_leaves_lifetimes_as_they_are(tmp_path: Path) -> None:
    """Up to Python 3.12, looking at a running frame's locals makes the frame keep them; we must not leave that behind."""
    path = tmp_path / "program.py"
    path.write_text(
        """
import weakref
import torch


def step():
    x = torch.ones(3, requires_grad=True)
    h = x.exp()
    ref = weakref.ref(h)
    h += 1
    try:
        h.sum().backward()
    except RuntimeError:
        pass
    del h
    print(ref() is None)
    y = x * 2
    other = weakref.ref(y)
    y = None
    print(other() is None, x.sum().item())


step()
"""
    )
    run = run_program(path, caught=True)
    assert run.stdout == "True\nTrue 3.0\n"
    assert run.diagnoses[0]["rule"] == "inplace-saved-tensor"
