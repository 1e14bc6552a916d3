"""Programs set a default device, and what torchsleuth makes for itself does not go there: every tensor it makes names its own."""

from __future__ import annotations

import ast
from pathlib import Path

import torchsleuth

SOURCES = Path(torchsleuth.__file__).parent
SHOWN = {"demo"}  # programs that are run as their authors would
MAKING = {
    "arange", "as_tensor", "empty", "eye", "full", "linspace", "normal", "ones", "rand", "randint", "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip


def _unnamed(path: Path) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    of_torch = [call for call in calls if ast.unparse(call.func.value) == "torch" and call.func.attr in MAKING]
    return [f"{path.name}:{call.lineno}: {ast.unparse(call)}" for call in of_torch if not {"device", None} & {keyword.arg for keyword in call.keywords}]


def test_tensors_are_made_on_a_device_that_is_named() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if not SHOWN & set(path.parts)]
    assert len(paths) > 100
    assert not [found for path in paths for found in _unnamed(path)]
