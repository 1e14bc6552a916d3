"""The house's one-way streets: which module may import which, and what must work without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import torchsleuth

ROOT = Path(torchsleuth.__file__).parent
PURE = ("model.py", "evidence.py", "rule.py", "wording.py", "errors.py", "diagnose.py", "origin.py", "sizes.py", "source.py")
STAGES = ("record", "capture", "render", "linter", "checker", "auditor")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", [ROOT / name for name in PURE] + sorted(ROOT.glob("rules/**/*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_pure_modules_do_not_import_torch(path: Path) -> None:
    assert not {name for name in _imports(path) if name.split(".")[0] in ("torch", "numpy")}


@pytest.mark.parametrize("path", sorted(ROOT.glob("rules/**/*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_rules_do_not_import_stages_that_touch_the_program(path: Path) -> None:
    forbidden = ("torchsleuth.record", "torchsleuth.capture", "torchsleuth.probe", "torchsleuth.render", "torchsleuth.pipeline", "torchsleuth.doors")
    assert not {name for name in _imports(path) if name.startswith(forbidden)}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_do_not_import_one_another(stage: str) -> None:
    """`capture` reads what `record` wrote; apart from that only the pipeline and the command line know several of them."""
    allowed = {stage, "record"} if stage == "capture" else {stage}
    for path in ROOT.glob(f"{stage}/**/*.py"):
        used = {parts[1] for parts in (name.split(".") for name in _imports(path)) if parts[0] == "torchsleuth" and len(parts) > 1}
        assert not used & {*STAGES, "pipeline", "doors", "cli"} - allowed, path


def test_renderers_know_only_the_model() -> None:
    for path in ROOT.glob("render/*.py"):
        ours = {name for name in _imports(path) if name.startswith("torchsleuth.")}
        assert all(name.startswith(("torchsleuth.model", "torchsleuth.render", "torchsleuth.rule")) for name in ours), path


def test_record_does_not_know_who_reads_it() -> None:
    for path in ROOT.glob("record/*.py"):
        ours = {name for name in _imports(path) if name.startswith("torchsleuth.")}
        assert not {n for n in ours if n.startswith(("torchsleuth.capture", "torchsleuth.rules", "torchsleuth.pipeline", "torchsleuth.render"))}, path


def test_help_and_rules_load_without_torch() -> None:
    code = (
        "import sys; from torchsleuth.rule import all_rules; rules = all_rules(); "
        "import torchsleuth.cli, torchsleuth.cli.run, torchsleuth.render.terminal, torchsleuth.render.json; "
        "assert len(rules) > 5; assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
