"""Where a statement is after edits, and that the mark is put behind it in every kind of statement."""

from __future__ import annotations

import ast

import pytest

from torchsleuth.model import Edit, Span
from torchsleuth.verify.instrument import BEGIN, MARK, mapped_line, marked


def _edit(line: int, column: int, end_line: int, end_column: int, text: str) -> Edit:
    return Edit(Span("x.py", line, column, end_line, end_column), text, "")


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ([], 5),
        ([_edit(2, 1, 2, 1, "a = 1\n")], 6),  # a line put in before
        ([_edit(9, 1, 9, 1, "a = 1\n")], 5),  # and after
        ([_edit(2, 1, 4, 1, "")], 3),  # two lines taken out
        ([_edit(5, 1, 5, 1, "with no_grad():\n    ")], 6),  # put under a header
        ([_edit(5, 5, 5, 9, "other")], 5),  # the statement itself changed
        ([_edit(4, 1, 5, 5, "")], 4),  # its header taken away, and it moved left
        ([_edit(3, 2, 3, 4, "xy"), _edit(4, 1, 4, 1, "\n\n")], 7),
    ],
)
def test_mapped_line(edits: list[Edit], line: int) -> None:
    assert mapped_line(5, 5, edits) == line


@pytest.mark.parametrize(
    ("text", "line", "begun", "passes"),
    [
        ("a = 1\nb = 2\n", 1, 1, 1),
        ("for i in range(3):\n    a = i\n", 2, 3, 3),
        ("def f():\n    return 1\nf(); f()\n", 2, 2, 2),
        ("for i in (1, 2):\n    pass\n", 1, 0, 2),
        ("if True:\n    x = (\n        1 +\n        2)\n", 3, 1, 1),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n", 2, 1, 0),
        ("with open(__file__):\n    a = 1\n", 1, 1, 1),
        ("class A:\n    x = 1\n", 2, 1, 1),
        ("for i in range(4):\n    if i % 2:\n        pass\n", 2, 4, 4),
        ("for i in range(4):\n    if i == 0: a = 1\n    elif i == 1:\n        pass\n    else: pass\n", 3, 3, 3),
        ("match 1:\n    case 1:\n        a = 2\n", 3, 1, 1),
    ],
)
def test_the_marks_are_called_around_the_statement(text: str, line: int, begun: int, passes: int) -> None:
    tree = ast.parse(text)
    assert marked(tree, line)
    calls: list[object] = []
    begins: list[int] = []

    def passed(value: object = None) -> object:
        calls.append(value)
        return value

    exec(compile(tree, __file__, "exec"), {MARK: passed, BEGIN: lambda: begins.append(1), "__file__": __file__})
    assert (len(begins), len(calls)) == (begun, passes)
