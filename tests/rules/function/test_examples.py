"""The example on every rule's page is what the rule finds: the program is run under a watch, and its Function checked."""

import contextlib
import io
import linecache
import re
import textwrap

import pytest

from torchsleuth.checker.live import FunctionWatch
from torchsleuth.checker.trial import FunctionRule
from torchsleuth.rule import rules_of


def program_of(rule):
    block = re.search(r"(?ms)^    import torch$.*?(?=^\S|\Z)", rule.page().section("Example"))
    return textwrap.dedent(block[0])


@pytest.mark.parametrize("rule", rules_of(FunctionRule), ids=lambda rule: rule.name)
def test_the_example_is_found(rule):
    source, file = program_of(rule), f"<example of {rule.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    watch = FunctionWatch()
    with watch, contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, file, "exec"), {"__name__": "example"})
    (report,) = watch.reports()
    assert {d.rule for d in report.diagnoses} == {rule.name}, str(report)
    if rule.name != "function-not-deterministic":
        assert all(d.culprits for d in report.diagnoses), str(report)
    text = str(report)
    assert "None" not in report.diagnoses[0].title.replace("returns None", "") and "{" not in text
