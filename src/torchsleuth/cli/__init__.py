"""The command line: one module per verb, imported only when that verb is used.

A verb module has `SUMMARY`, `configure(parser)` and `main(options) -> int` (the exit status). Adding a
verb is adding a file here.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

from torchsleuth.errors import TorchsleuthError


def verbs() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in verbs():
        return _run_verb(arguments[0], arguments[1:])
    parser = argparse.ArgumentParser(
        prog="torchsleuth",
        description="Finds out why a PyTorch program fails, with evidence.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "\n".join(f"  {verb:<8} {_verb_module(verb).SUMMARY}" for verb in verbs()),
    )
    parser.add_argument("--version", action="version", version=f"torchsleuth {_version()}")
    parser.add_argument("verb", choices=verbs(), metavar="VERB", help="what to do; `torchsleuth VERB --help` says more")
    parser.parse_args(arguments[:1])
    parser.print_help()
    return 2


def _run_verb(verb: str, arguments: list[str]) -> int:
    module = _verb_module(verb)
    parser = argparse.ArgumentParser(
        prog=f"torchsleuth {verb}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    options = parser.parse_args(arguments)
    try:
        return module.main(options)
    except TorchsleuthError as error:
        print(f"torchsleuth: {error}", file=sys.stderr)
        return 2


def _verb_module(verb: str):
    return importlib.import_module(f"torchsleuth.cli.{verb}")


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("torchsleuth")
