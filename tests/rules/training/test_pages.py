"""Pages of the audit's rules: complete, torch-free, and every program in them does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from torchsleuth.auditor.verdicts import AuditRule
from torchsleuth.rule import HEADINGS, rules_of

RULES = rules_of(AuditRule)


def program(rule) -> str:
    lines = rule.page().section("Example").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("    import"))
    return "\n".join(line[4:] for line in lines[start:])


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_page_is_complete(rule):
    page = rule.page()
    assert tuple(title for title, text in page.sections if text.strip()) == HEADINGS
    assert page.summary.endswith(".") and not rule.__doc__.startswith("\n")


def test_programs_do_what_their_pages_say(capsys):
    for rule in RULES:
        said = rule.page().section("Example")
        scope: dict = {}
        try:
            exec(compile(program(rule), rule.name, "exec"), scope)  # noqa: S102
            raised = ""
        except Exception as error:
            raised = type(error).__name__
        printed = capsys.readouterr().out.split("\n")[:-1]
        if "raises" in said:
            assert raised and raised in said, rule.name
        else:
            assert not raised and printed, rule.name
        for line in printed:
            if re.fullmatch(r"tensor\(.*\)|\[.*\]|True|False|None|nan|torch\.Size.*", line):
                words = line.split(" ", 2)[0] if line.startswith("torch.Size") else line
                assert words.rstrip(",") in " ".join(said.split()), (rule.name, line)


def test_rules_need_no_torch():
    code = "import sys, torchsleuth.rule as r; r.all_rules(); from torchsleuth.auditor import judge; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
