"""`pytest --torchsleuth`: a torch error is explained beneath the test that failed of it, and nothing else is different."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = """
    import pytest
    import torch
    from torch import nn

    def doubled(h):
        h *= 2
        return h

    @pytest.fixture
    def hidden():
        return torch.ones(3, requires_grad=True).exp()

    def test_that_overwrites(hidden):
        doubled(hidden).sum().backward()

    @pytest.mark.parametrize("width", [4, 5])
    def test_of_sizes(width):
        assert nn.Linear(4, 2)(torch.ones(3, width)).shape == (3, 2)

    def test_that_expects_an_error(hidden):
        with pytest.raises(RuntimeError, match="inplace"):
            doubled(hidden).sum().backward()

    @pytest.fixture
    def broken():
        return torch.zeros(3)[5]

    def test_whose_set_up_fails(broken):
        pass

    @pytest.mark.xfail
    def test_that_may_fail():
        torch.zeros(2) + torch.zeros(3)

    def test_of_something_else():
        assert 1 == 2
"""


def _pytest(tmp_path: Path, *options: str, text: str = TESTS) -> subprocess.CompletedProcess:
    (tmp_path / "test_model.py").write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_model.py"], cwd=tmp_path, capture_output=True, text=True)


def _explained(output: str) -> dict[str, str]:
    """By test, what torchsleuth says beneath it."""
    parts = re.split(r"^_+ (?:ERROR at setup of )?(\S+) _+$", output, flags=re.MULTILINE)
    return {name: text.split("- torchsleuth -", 1)[1] for name, text in zip(parts[1::2], parts[2::2], strict=True) if "- torchsleuth -" in text}


def test_torch_errors_are_explained_beneath_their_tests(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--torchsleuth")
    found = _explained(run.stdout)
    assert set(found) == {"test_that_overwrites", "test_of_sizes[5]", "test_whose_set_up_fails"}
    assert "inplace-saved-tensor" in found["test_that_overwrites"] and "h *= 2" in found["test_that_overwrites"]
    assert "`torch.ones(3, width)` has 5 features" in found["test_of_sizes[5]"] and "@py_assert" not in run.stdout
    assert "index-out-of-range" in found["test_whose_set_up_fails"]
    assert "oplog.py" not in run.stdout, "tracebacks are as without us"


def test_the_results_are_those_without_it(tmp_path: Path) -> None:
    def results(run: subprocess.CompletedProcess) -> str:
        return re.sub(r" in [\d.]+s.*", "", run.stdout.splitlines()[-1])

    plain = _pytest(tmp_path)
    assert "- torchsleuth -" not in plain.stdout
    assert results(plain) == results(_pytest(tmp_path, "--torchsleuth")) == results(_pytest(tmp_path, "--torchsleuth", "-n", "1"))


def test_workers_send_their_explanations(tmp_path: Path) -> None:
    assert len(_explained(_pytest(tmp_path, "--torchsleuth", "-n", "1").stdout)) == 3


def test_nothing_is_imported_where_it_is_not_asked_for(tmp_path: Path) -> None:
    text = """
        import sys

        def test_modules():
            assert not {"torch", "torchsleuth"} & set(sys.modules)
    """
    assert _pytest(tmp_path, text=text).returncode == 0
    assert _pytest(tmp_path, "--torchsleuth", text=text.replace('{"torch", "torchsleuth"}', '{"torch"}')).returncode == 0
