"""Writes one page per rule to docs/rules/ and their index, from the rules' docstrings: `make docs`.

`pages()` is what should be there; the tests compare it with what is.
"""

from __future__ import annotations

import pathlib
import re

from torchsleuth.explainer import listed_rules, paged_rules
from torchsleuth.pages import RulePage

FOLDER = pathlib.Path(__file__).parent / "rules"
NOTICE = "<!-- Written by docs/generate.py from the rule's docstring: change that, then run `make docs`. -->"


def page(rule: RulePage) -> str:
    """A rule's page as Markdown: its docstring with headings, and indented programs as Python blocks."""
    content = rule.page
    lines = [NOTICE, "", f"# {rule.name}", "", content.summary, ""]
    for heading, text in content.sections:
        lines += [f"## {heading}", "", _fenced(text), ""]
    return "\n".join(lines).rstrip() + "\n"


def _fenced(text: str) -> str:
    """Indented programs between fences, so that they are shown as Python."""

    def fence(found: re.Match[str]) -> str:
        code = "\n".join(line[4:] for line in found[0].rstrip().splitlines())
        return f"```python\n{code}\n```\n"

    return re.sub(r"(?m)^    (?=import |from ).*\n?(?:(?:    .*|[ \t]*)\n?)*", lambda m: fence(m) + "\n", text + "\n").rstrip()


def index() -> str:
    lines = [NOTICE, "", "# Rules", ""]
    for heading, rules in listed_rules():
        lines += [f"## {heading[0].upper()}{heading[1:]}", "", "| rule | what it says |", "| --- | --- |"]
        lines += [f"| [{rule.name}]({rule.name}.md) | {_cell(rule.page.summary)} |" for rule in rules]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[str, str]:
    """File name to content."""
    return {"README.md": index(), **{f"{rule.name}.md": page(rule) for rule in paged_rules()}}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for name, content in wanted.items():
        (FOLDER / name).write_text(content, encoding="utf-8")
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    print(f"{len(wanted) - 1} rule pages in {FOLDER.name}/")


if __name__ == "__main__":
    main()
