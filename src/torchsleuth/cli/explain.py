"""Explain an error message, a rule, a question or a log: what it means with its numbers, the true causes, a program that shows it, the fix, and
what is often said and not true. Nothing of yours is run, and torch is not imported.

  torchsleuth explain "IndexError: select(): index 1 out of range for tensor of size [1, 32, 100] at dimension 0"
  torchsleuth explain inplace-saved-tensor
  torchsleuth explain                        the list of rules
  python train.py 2>&1 | torchsleuth explain
"""

from __future__ import annotations

import argparse
import contextlib
import sys

SUMMARY = "say what an error message means, with its numbers; or print a rule's page"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", metavar="MESSAGE|RULE", help="a message or question (quoted), or a rule's name; `-` reads standard input")
    parser.add_argument("--list", action="store_true", help="list the rules, whatever standard input is")


def main(options: argparse.Namespace) -> int:
    from torchsleuth.explainer import explain
    from torchsleuth.render.explanation import show

    text = " ".join(options.text)
    if not options.list and (text == "-" or (not text and _piped())):
        text = _standard_input()
    explanation = explain("" if options.list else text)
    try:
        show(explanation)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head`: the reader has seen enough
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if explanation.answered else 1


def _standard_input() -> str:
    import select

    # Who is called with a pipe that nobody writes to would wait for ever without knowing why.
    with contextlib.suppress(OSError, ValueError):
        if not select.select([sys.stdin], [], [], 2.0)[0]:
            print("torchsleuth: waiting for a log on standard input (`torchsleuth explain --list` lists the rules)", file=sys.stderr)
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _piped() -> bool:
    """Whether something is piped or redirected to us (and not merely a closed or missing standard input)."""
    import os
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
