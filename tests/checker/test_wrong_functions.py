"""Functions with one slip: the rule, the words and the marked line, from the API and nothing else accused."""

import inspect
import re

import pytest
import torch
import wrong_functions as wrong

import torchsleuth

FUNCTIONS = [v for v in vars(wrong).values() if isinstance(v, type) and v.__module__ == wrong.__name__]
SOURCE = inspect.getsource(wrong).split("\n")


def rand(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def distinct(values):
    """Two inputs of one shape must not be equal."""
    return [v + 0.3 * k if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in enumerate(values)]


def mask(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) > 0.5


def notes(function, key):
    first = inspect.getsourcelines(function)[1] - 1
    for line in reversed(SOURCE[:first]):
        if not line.startswith("#"):
            break
        found = re.match(rf"# {key}: (.*)", line)
        if found:
            return found[1]
    raise AssertionError(f"{function.__name__} says no {key}")


def marks(function):
    lines, first = inspect.getsourcelines(function)
    return {(found[1], first + n) for n, line in enumerate(lines) if (found := re.search(r"# culprit: ([\w-]+)", line))}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_slip_is_named(function):
    inputs = distinct(eval(f"[{notes(function, 'inputs')}]"))
    report = torchsleuth.check(function, *inputs, strict=True)
    text = " ".join(str(report).split())
    rules = [d.rule for d in report.diagnoses]
    assert set(rules) == {notes(function, "rule")}, text
    for words in notes(function, "says").split(" | "):
        assert words in text, f"{words!r} is not in: {text}"
    named = {(c.role.value, c.span.line) for d in report.diagnoses for c in d.culprits}
    assert marks(function) <= named, (named, text)
    assert len(named) <= max(1, len(marks(function))), named
    advice = notes(function, "rule") == "function-output-marks"
    assert report.ok == advice


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_fix_that_is_offered_as_an_edit_is_right(function):
    """Applied to the source of the class, the edit gives a Function that gets a clean bill."""
    inputs = distinct(eval(f"[{notes(function, 'inputs')}]"))
    report = torchsleuth.check(function, *inputs)
    for diagnosis in report.diagnoses:
        for fix in diagnosis.fixes:
            if not fix.edits:
                continue
            (edit,) = fix.edits
            lines = list(SOURCE)
            line = lines[edit.span.line - 1]
            lines[edit.span.line - 1] = line[: edit.span.column - 1] + edit.replacement + line[edit.span.end_column - 1 :]
            namespace = {}
            exec(compile("\n".join(lines), "<fixed>", "exec"), namespace)
            fixed = torchsleuth.check(namespace[function.__name__], *inputs)
            assert fixed.ok, f"{fix.title}: {fixed}"
            assert fix.diff.startswith("--- a/") and fix.verdict.status.value == "passed"
