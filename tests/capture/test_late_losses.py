"""A gradient lost late in a run, when the operation log has ended: what is new in the failing round is to blame."""

from __future__ import annotations

from pathlib import Path

from programs import run_program

PROGRAM = """
import torch
from torch import nn

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 4)
        self.register_buffer("values", torch.randn(4))

    def soft(self, x):
        return self.f(x).softmax(-1) @ self.values

    def hard(self, x):
        return self.values[self.f(x).argmax(-1)]

    def forward(self, x, step):
        return self.soft(x) if step < 12 else self.hard(x)

net = Policy()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
baseline = torch.zeros(())
for step in range(20):
    x = torch.randn(5, 3)
    value = net(x, step)
    baseline = baseline * 0.9 + value.mean().detach() * 0.1
    loss = (value - baseline).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_the_line_that_is_new_is_named_and_not_one_that_ran_in_every_round(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(PROGRAM)
    run = run_program(script, exact_seconds=0)
    cut = PROGRAM.split("\n").index("        return self.values[self.f(x).argmax(-1)]") + 1
    assert [line for role, line in run.culprits() if role == "lost-grad"] == [cut], run.stderr
    assert "for the first time" in run.words()
    assert run.diagnoses[0]["confidence"] == "likely"
