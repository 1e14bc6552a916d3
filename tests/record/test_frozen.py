"""Exceptions that refuse assignments (frozen data classes) pass through a watched program as through any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from dataclasses import dataclass
import torch

@dataclass(frozen=True, slots=True)
class Refused(Exception):
    reason: str

for _ in range(2):
    try:
        if torch.ones(2).sum() > 0:
            raise Refused("caught")
    except Refused as error:
        print(error.reason)
raise Refused("not caught")
"""


@pytest.mark.parametrize("options", [(), ("--caught",)], ids=["run", "caught"])
def test_a_frozen_exception_is_the_programs_own_affair(tmp_path, options):
    (tmp_path / "main.py").write_text(PROGRAM)
    plain, watched = (
        subprocess.run([sys.executable, *words, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        for words in ((), ("-m", "torchsleuth", "run", *options))
    )
    assert (watched.returncode, watched.stdout, watched.stderr) == (plain.returncode, plain.stdout, plain.stderr)
