"""Where a statement is after edits, and that the mark is put behind it in every kind of statement."""

from __future__ import annotations

import ast

import pytest

from torchsleuth.model import Edit, Span
from torchsleuth.verify.instrument import BEGIN, MARK, mapped, marked


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
    assert mapped(5, 5, edits)[0] == line


@pytest.mark.parametrize(
    ("edits", "place"),
    [
        ([_edit(5, 1, 5, 1, "h = 1; ")], (5, 12)),  # put in before it on its line
        ([_edit(5, 2, 5, 4, "")], (5, 3)),  # taken out
        ([_edit(5, 1, 5, 1, "  "), _edit(5, 3, 5, 3, "(")], (5, 8)),
        ([_edit(5, 1, 5, 1, "with no_grad():\n    ")], (6, 9)),
        ([_edit(5, 5, 5, 9, "other")], (5, 5)),
        ([_edit(4, 3, 5, 3, "")], (4, 5)),  # joined with the line before
        ([_edit(5, 1, 5, 1, "ab\ncd"), _edit(5, 2, 5, 3, "xyz")], (6, 9)),
    ],
)
def test_mapped_column(edits: list[Edit], place: tuple[int, int]) -> None:
    assert mapped(5, 5, edits) == place


def test_of_several_statements_on_a_line_the_one_at_the_column() -> None:
    for column, expected in ((1, "a"), (8, "b"), (15, "c")):
        tree = ast.parse("a = 1; b = 2; c = 3\n")
        assert marked(tree, 1, column)
        around = [ast.unparse(item) for item in tree.body]
        assert around[around.index(f"{BEGIN}()") + 1].startswith(expected)


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
