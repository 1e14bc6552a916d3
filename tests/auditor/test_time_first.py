"""Batches with time first and without labels: what the layers take says which axis counts the samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchsleuth

SAMPLES = 4


class Recurrent(nn.Module):
    def __init__(self, steps: int, right: bool, cell: type = nn.GRU):
        super().__init__()
        self.rnn, self.out, self.right = cell(8, 6), nn.Linear(6 * steps, 2), right

    def forward(self, x):
        h, _ = self.rnn(x)
        h = h.transpose(0, 1) if self.right else h
        return self.out(h.reshape(x.shape[1], -1))


class Attentive(nn.Module):
    def __init__(self, steps: int, right: bool):
        super().__init__()
        self.attention, self.out, self.right = nn.MultiheadAttention(8, 2), nn.Linear(8 * steps, 2), right

    def forward(self, x):
        h = self.attention(x, x, x, need_weights=False)[0]
        h = h.permute(1, 0, 2) if self.right else h
        return self.out(h.reshape(x.shape[1], -1))


class Last(nn.Module):
    """Samples come first, and `batch_first=True` was forgotten: the layer goes along them."""

    def __init__(self, right: bool):
        super().__init__()
        self.rnn, self.out = nn.GRU(8, 6, batch_first=right), nn.Linear(6, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


@pytest.mark.parametrize("steps", [3, 6])
@pytest.mark.parametrize("build", [Recurrent, Attentive, lambda steps, right: Recurrent(steps, right, nn.LSTM)], ids=["gru", "attention", "lstm"])
def test_samples_along_the_second_axis(build, steps: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(steps, SAMPLES, 8)
    (found,) = torchsleuth.audit(build(steps, False), x).diagnoses
    assert found.rule == "batch-mixing" and "reshape" in found.culprits[0].source
    assert torchsleuth.audit(build(steps, True), x).diagnoses == ()


def test_a_forgotten_batch_first_is_no_time_first() -> None:
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 6, 8)
    (found,) = torchsleuth.audit(Last(False), x).diagnoses
    assert found.rule == "batch-mixing" and "self.rnn(x)" in found.culprits[0].source
    assert torchsleuth.audit(Last(True), x).diagnoses == ()
