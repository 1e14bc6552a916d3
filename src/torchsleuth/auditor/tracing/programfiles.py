"""The program's own source files, for what is only to be found there: the file of each known place, and what was loaded from beside it."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import syntax_of
from torchsleuth.origin import Origin, origin_of_file

MOST_FILES = 50


def program_syntax(near: Iterable[Site | None]) -> Iterator[tuple[str, ast.Module]]:
    """Each file with its syntax. `near`: places of the program in whose folders its files lie."""
    files = {os.path.abspath(site.span.file) for site in near if site is not None}
    folders = {os.path.dirname(file) for file in files}
    loaded = [os.path.abspath(f) for m in list(sys.modules.values()) if isinstance(f := getattr(m, "__file__", None), str) and f.endswith(".py")]
    files |= {f for f in loaded if any(f.startswith(folder + os.sep) for folder in folders) and origin_of_file(f) is Origin.USER}
    for file in sorted(files)[:MOST_FILES]:
        if (tree := syntax_of(file)) is not None:
            yield file, tree
