"""Every rule's page has its headings, its programs do what the sentence before them says, and docs/rules/ agrees with the docstrings."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import warnings

import pytest

from torchsleuth.rule import HEADINGS, all_rules

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _module(name: str, path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


generate = _module("docs_generate", ROOT / "docs" / "generate.py")
run_programs = _module("run_programs", ROOT / "tests" / "explain" / "run_programs.py")


def programs_of(text: str) -> list[tuple[str, str]]:
    """Every program of a page with the sentence before it."""
    lines = text.splitlines()
    found = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if not (line.startswith("    ") and line.strip().startswith("import ")):
            number += 1
            continue
        indent = len(line) - len(line.lstrip())
        block = []
        start = number
        while number < len(lines) and (not lines[number].strip() or lines[number].startswith(" " * indent)):
            block.append(lines[number][indent:])
            number += 1
        said: list[str] = []
        for before in reversed(lines[:start]):
            if before.strip():
                said.insert(0, before.strip())
            elif said:
                break
        found.append((" ".join(said), "\n".join(block).rstrip() + "\n"))
    return found


def expectation(said: str) -> tuple[str, str]:
    """("raises", part of "Type: message") or ("runs", part of the output). The last such verb before the program counts."""
    verbs = list(re.finditer(r"\b(does not raise|do not raise|raises nothing|never raises|raises|raise|fails with|runs|run|prints|print)\b", said))
    assert verbs, f"the sentence before the program must say whether it raises, runs or prints: {said!r}"
    last = verbs[-1]
    rest = said[last.end() :]
    if last[1] in ("raises", "raise", "fails with"):
        quoted = re.search(r'["“](.+?)["”]', rest) or re.search(r"`((?:\w+Error)[^`]*)`", rest)
        if quoted:
            return "raises", quoted[1].rstrip(".").replace("…", "...").split("...")[0]
        named = re.search(r"\b(\w+Error|NotImplementedError)\b(?:: (.+?))?(?::?$)", rest)
        return "raises", (f"{named[1]}: {named[2]}" if named and named[2] else named[1] if named else "")
    if last[1] in ("prints", "print"):
        quoted = re.match(r'\s+(?:["“`](.+?)["”`]|(True|False|None|-?\d[\d.]*)\b)', rest)
        return "runs", (quoted[1] or quoted[2]) if quoted else ""
    return "runs", ""


def _plain(message: str) -> str:
    """Without what differs between torch versions: "Output 0 of Unbind" was "Output 0 of UnbindBackward0"."""
    return re.sub(r"Backward\d*", "", message)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_page_is_complete(rule) -> None:
    page = rule.page()
    assert page.summary.endswith("."), "the first line is one sentence"
    assert tuple(heading for heading, _ in page.sections) == HEADINGS
    assert all(text.strip() for _, text in page.sections), "an empty section"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


def test_names_are_unique_within_a_stage() -> None:
    """The same offence may be known to two stages (a crash, and the linter before it), never twice to one."""
    names = [(type(rule).__module__.rsplit(".", 1)[0], rule.name) for rule in all_rules()]
    assert len(names) == len(set(names))


def test_programs_do_what_the_page_says() -> None:
    wanted = []
    for rule in all_rules():
        for heading, text in rule.page().sections:
            wanted += [(rule.name, heading, said, source) for said, source in programs_of(text)]
    done = run_programs.outcomes([source for *_, source in wanted])
    wrong = []
    for name, heading, said, source in wanted:
        outcome = done[source]
        try:
            kind, part = expectation(said)
        except AssertionError as error:
            wrong.append(f"{name}, {heading}: {error}")
            continue
        if kind == "raises" and not outcome.raised:
            wrong.append(f"{name}, {heading}: should raise {part!r}, and ran:\n{source}")
        elif kind == "raises" and _plain(part) not in _plain(outcome.raised):
            wrong.append(f"{name}, {heading}: should raise {part!r}, and raised {outcome.raised[:300]!r}:\n{source}")
        elif kind == "runs" and outcome.raised:
            wrong.append(f"{name}, {heading}: should run, and raised {outcome.raised[:300]!r}:\n{source}")
        elif kind == "runs" and part not in outcome.printed:
            wrong.append(f"{name}, {heading}: should print {part!r}, and printed {outcome.printed[:300]!r}:\n{source}")
    print(f"{len(wanted)} programs on {len(all_rules())} pages")
    assert not wrong, "\n\n".join(wrong)


def test_every_rule_shows_a_program() -> None:
    without = [rule.name for rule in all_rules() if not any(programs_of(text) for _, text in rule.page().sections)]
    assert not without, f"no program (an indented block that starts with `import torch`) on the pages of {without}"


def test_written_pages_equal_the_docstrings() -> None:
    """Every page that is there equals its docstring. A rule that has none yet is only pointed out: `make docs` writes them all."""
    wanted = generate.pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in generate.FOLDER.glob("*.md") if path.name != "README.md"}
    stale = [name for name, content in there.items() if content != wanted.get(name)]
    assert not stale, f"run `make docs`: out of date {stale}"
    if missing := set(wanted) - {path.name for path in generate.FOLDER.glob("*.md")}:
        warnings.warn(f"run `make docs`: no page yet for {sorted(missing)}", stacklevel=1)
