"""Draws docs/report.svg, the README's picture: the real report of `torchsleuth demo`, made by running it.

    python docs/picture.py
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from torchsleuth.cli.demo import _FOLDER, _MOST_TELLING
from torchsleuth.options import Options
from torchsleuth.pipeline import Watch
from torchsleuth.program import run_script
from torchsleuth.render import terminal

HERE = Path(__file__).resolve().parent


def main() -> None:
    import os

    os.chdir(_FOLDER)  # so that the picture names gan.py, as a user's report names train.py
    watch = Watch(Options(quiet=True))
    run_script(f"{_MOST_TELLING}.py", [], watch)
    assert watch.delivered is not None, "the demo was not explained"
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True, highlight=False)
    terminal.show(watch.delivered, console)
    svg = console.export_svg(title="torchsleuth run gan.py")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no font fetched from the net: monospace will do
    (HERE / "report.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    sys.stderr = io.StringIO()
    main()
