"""Finds silent bugs of models and training steps by experiment.

`torchsleuth audit train.py [arguments]` runs the script, captures its first training step and audits it;
`torchsleuth audit module:function` calls a function that returns what `torchsleuth.audit` takes: a tuple
(model, batch[, loss_fn]) or a dict with these names.
"""

from __future__ import annotations

import argparse

from torchsleuth.errors import UsageError
from torchsleuth.model import Outcome, Report

SUMMARY = "find silent bugs of a model and its first training step, by experiment"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if there are findings")
    parser.add_argument("--overfit", action="store_true", help="also try to learn the batch by heart (module:function only)")
    parser.add_argument("--budget", metavar="SECONDS", type=float, default=120.0, help="time for the experiments (default: 120)")
    parser.add_argument("--quiet", action="store_true", help="print nothing; use with --json or --strict")
    parser.add_argument("target", metavar="SCRIPT | MODULE:FUNCTION", help="a training script, or a function that returns a model and a batch")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def main(options: argparse.Namespace) -> int:
    from torchsleuth.auditor import targets

    name, colon, function = options.target.rpartition(":")
    if colon and not options.target.endswith(".py"):
        if options.arguments:
            raise UsageError(f"a function takes no arguments here: {' '.join(options.arguments)}")
        report, status = targets.audit_function(name, function, options.overfit, options.budget), 0
    else:
        report, status = targets.audit_script(options.target, options.arguments, options.budget)
    _deliver(report, options)
    if status == 0 and options.strict and report.outcome is not Outcome.OK:
        return 1
    return status


def _deliver(report: Report, options: argparse.Namespace) -> None:
    if options.json:
        from torchsleuth.render import json

        json.write(report, options.json)
    if options.quiet:
        return
    from torchsleuth.render import terminal

    console = terminal.console_for()
    terminal.show(report, console)
    if report.outcome is Outcome.OK:
        console.print("torchsleuth: no findings.", style="dim")
