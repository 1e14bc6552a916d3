"""Finds silent bugs of models and training steps by experiment.

`torchsleuth audit train.py [arguments]` runs the script as `torchsleuth run --audit` does, and audits its first training step;
`torchsleuth audit module:function` calls a function that returns what `torchsleuth.audit` takes: a tuple
(model, batch[, loss_fn]) or a dict with these names.
"""

from __future__ import annotations

import argparse

from torchsleuth.errors import UsageError
from torchsleuth.model import Outcome, Report
from torchsleuth.options import DEFAULT_BUDGET_SECONDS

SUMMARY = "find silent bugs of a model and its first training step, by experiment"


def configure(parser: argparse.ArgumentParser) -> None:
    _flags(parser)
    parser.set_defaults(json=None, strict=False, overfit=False, budget=DEFAULT_BUDGET_SECONDS, quiet=False)
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as `python -m` does")
    parser.add_argument("target", metavar="SCRIPT | MODULE:FUNCTION", help="a training script, or a function that returns a model and a batch")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if there are findings")
    parser.add_argument("--overfit", action="store_true", help="also try to learn the batch by heart (MODULE:FUNCTION only)")
    parser.add_argument("--budget", metavar="SECONDS", type=float, help="time for the experiments (default: 120)")
    parser.add_argument("--quiet", action="store_true", help="print nothing; use with --json or --strict")


def main(options: argparse.Namespace) -> int:
    name, colon, function = options.target.rpartition(":")
    if not options.module and colon and not options.target.endswith(".py"):
        _late_options(options)
        return _audit_function(name, function, options)
    return _audit_program(options)


def _audit_program(options: argparse.Namespace) -> int:
    """As `torchsleuth run --audit`."""
    from torchsleuth.cli.run import run_watched
    from torchsleuth.options import Options
    from torchsleuth.pipeline import Watch

    watch = Watch(Options(json=options.json, quiet=options.quiet, remember=True, audit=True, budget_s=options.budget), "audit")
    return run_watched(options.target, options.arguments, options.module, watch, options.strict)


def _audit_function(module: str, function: str, options: argparse.Namespace) -> int:
    import functools

    from torchsleuth.auditor import targets
    from torchsleuth.doors import audit

    report = targets.audit_function(module, function, functools.partial(audit, overfit=options.overfit, budget_s=options.budget))
    _deliver(report, options)
    return int(report.outcome is Outcome.CRASH or (options.strict and report.outcome is not Outcome.OK))


def _late_options(options: argparse.Namespace) -> None:
    """A function takes no arguments, so options may also follow it."""
    parser = argparse.ArgumentParser(prog="torchsleuth audit", allow_abbrev=False, argument_default=argparse.SUPPRESS)
    _flags(parser)
    try:
        late, unknown = parser.parse_known_args(options.arguments)
    except SystemExit:
        raise UsageError(f"cannot read the options {' '.join(options.arguments)}") from None
    if unknown:
        raise UsageError(f"unknown arguments: {' '.join(unknown)}")
    vars(options).update(vars(late))


def _deliver(report: Report, options: argparse.Namespace) -> None:
    if options.json:
        from torchsleuth.render import json

        json.write(report, options.json)
    if options.quiet:
        return
    from torchsleuth.render import terminal

    terminal.show_outcome(report, terminal.console_for())
