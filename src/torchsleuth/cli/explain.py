"""Explain an error message, a rule, a question or a log: what it means with its numbers, the true causes, a program that shows it, the fix, and
what is often said and not true. Nothing of yours is run, and torch is not imported.

  torchsleuth explain "IndexError: select(): index 1 out of range for tensor of size [1, 32, 100] at dimension 0"
  torchsleuth explain inplace-saved-tensor
  torchsleuth explain                        the list of rules
  python train.py 2>&1 | torchsleuth explain
"""

from __future__ import annotations

import argparse
import sys

SUMMARY = "say what an error message means, with its numbers; or print a rule's page"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", metavar="MESSAGE|RULE", help="a message or question (quoted), or a rule's name; `-` reads standard input")


def main(options: argparse.Namespace) -> int:
    from torchsleuth.explainer import explain
    from torchsleuth.render.explanation import show

    text = " ".join(options.text)
    if text == "-" or (not text and _piped()):
        text = sys.stdin.read()
    explanation = explain(text)
    try:
        show(explanation)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head`: the reader has seen enough
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if explanation.answered else 1


def _piped() -> bool:
    """Whether something is piped or redirected to us (and not merely a closed or missing standard input)."""
    import os
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
