"""Looking for the first NaN runs the model again: nothing of it may be different afterwards, and nothing is said that was not seen."""

from forward_harness import run_program

_PROGRAM = """\
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.calls, self.last = 0, None
    def forward(self, x, keep):
        print("forward")
        self.calls += 1
        self.last = self.out(torch.dropout(self.norm(x), 0.5, True))
        return self.last.masked_fill(~keep, float("-inf")).softmax(-1)
torch.manual_seed(3)
model = Model()
x, keep = torch.randn(5, 4), torch.zeros(5, 3, dtype=torch.bool)
chances = model(x, keep)
before = ({k: v.clone() for k, v in model.state_dict().items()}, model.calls, model.last, torch.get_rng_state())
torch.multinomial(chances, 1)
"""


def test_no_trace_is_left(capsys) -> None:
    result = run_program(_PROGRAM)
    assert "5 of the 5 slices" in result.text
    frame = result.error.__traceback__
    while frame.tb_next is not None and "before" not in frame.tb_frame.f_globals:
        frame = frame.tb_next
    names = frame.tb_frame.f_globals
    state, calls, last, random = names["before"]
    model = names["model"]
    assert all(bool((value == state[key]).all()) for key, value in model.state_dict().items())
    assert (model.calls, model.last is last) == (calls, True) == (1, True)
    assert bool((names["torch"].get_rng_state() == random).all())
    assert capsys.readouterr().out.count("forward") == 1


def test_numbers_that_are_finite_when_computed_again_accuse_nobody() -> None:
    """What is drawn differs: the second time there is no NaN, and no line is named but the failing one and where the tensor was made."""
    result = run_program("""\
import torch
torch.manual_seed(0)
turns = iter([True, False])
class Odd(torch.nn.Module):
    def forward(self, x):
        return x * float("nan") if next(turns) else x.abs()
odd = Odd()
x = torch.rand(4)
chances = odd(x)
torch.multinomial(chances, 1)
""", log=False)  # fmt: skip
    assert result.diagnosis.rule == "value-domain"
    assert result.lines <= {9, 10}, result.text
    assert "first to make" not in result.text
