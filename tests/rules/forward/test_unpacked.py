"""Unpacking what a call returned: only the operation log has seen it."""

from forward_harness import Case, check

ONE_STATE = Case("one-state-for-two", """\
import torch
from torch import nn
rnn = nn.GRU(4, 6, batch_first=True)
out, (h, c) = rnn(torch.randn(3, 5, 4))  #! index
""", "list-of-tensors", ("[1, 3, 6]", "a GRU"))  # fmt: skip

ROWS = Case("a-tensor-for-two", """\
import torch
from torch import nn
layer = nn.Linear(6, 4)
def encoded(x):
    return layer(x)  #! create
mean, spread = encoded(torch.randn(8, 6))  #! index
""", "list-of-tensors", ("[8, 4]", "`encoded`"))  # fmt: skip


def test_a_state_is_no_pair():
    assert not check(ONE_STATE)


def test_rows_are_no_values():
    assert not check(ROWS)
