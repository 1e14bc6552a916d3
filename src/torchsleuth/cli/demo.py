"""Run a built-in failing program and show its diagnosis."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

SUMMARY = "show a real diagnosis of a built-in failing program"

_FOLDER = Path(__file__).parent.parent / "demo"
_MOST_TELLING = "gan"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=_MOST_TELLING, help="which one (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="list them")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")


def main(options: argparse.Namespace) -> int:
    programs = {path.stem: path for path in sorted(_FOLDER.glob("*.py")) if path.stem != "__init__"}
    if options.list:
        for name, path in programs.items():
            print(f"{name:<16} {ast.get_docstring(ast.parse(path.read_text()))}")
        return 0
    from torchsleuth.errors import UsageError
    from torchsleuth.options import Options
    from torchsleuth.pipeline import Watch
    from torchsleuth.program import run_script

    if options.name not in programs:
        raise UsageError(f"no demo called {options.name!r}; there are {', '.join(programs)}")
    path = programs[options.name]
    print(f"$ torchsleuth run {path.name}          # {ast.get_docstring(ast.parse(path.read_text()))}", flush=True)
    # The program is meant to fail; the demo has succeeded when its failure was explained.
    watch = Watch(Options(json=options.json))
    run_script(str(path), [], watch)
    return 0 if watch.delivered else 1
