"""`sizes` agrees with torch about what fits, and spares the import that torch's own answer costs."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch

from torchsleuth.sizes import broadcast_size

SIZES = [(), (0,), (1,), (3,), (4,), (0, 1), (1, 3), (3, 1), (4, 3), (3, 4), (1, 1, 1), (2, 1, 4), (2, 3, 4), (2, 3, 0)]


@pytest.mark.parametrize("operands", [*itertools.product(SIZES, repeat=2), *itertools.product(SIZES[2:9], repeat=3)], ids=str)
def test_the_same_as_torch(operands: tuple[tuple[int, ...], ...]) -> None:
    try:
        expected = tuple(torch.broadcast_shapes(*operands))
    except RuntimeError:
        expected = None
    assert broadcast_size(*operands) == expected


def test_an_audit_does_not_import_symbolic_shapes() -> None:
    code = (
        "import sys, torch, torchsleuth; from torch import nn; "
        "model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)); x, y = torch.randn(6, 4), torch.randn(6); "
        "report = torchsleuth.audit(model, x, loss_fn=lambda out: ((out - y) ** 2).mean()); "
        "assert report.diagnoses, 'the operands that stretch one another were not looked at'; "
        "assert 'torch.fx.experimental.symbolic_shapes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
