"""Run a program at full speed; if it fails in a way torchsleuth knows, a report follows its traceback."""

from __future__ import annotations

import argparse
import os
import typing

from torchsleuth.options import DEFAULT_EXACT_SECONDS

if typing.TYPE_CHECKING:
    from torchsleuth.pipeline import Watch

SUMMARY = "run a program and explain its failure"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchsleuth run [options] (SCRIPT | -m MODULE) [arguments of the program …]"
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    parser.add_argument("--caught", action="store_true", help="also report torch errors that the program caught itself")
    parser.add_argument("--deep", action="store_true", help="log every operation throughout: slower, and exact at any step")
    parser.add_argument(
        "--exact",
        type=float,
        metavar="SECONDS",
        default=DEFAULT_EXACT_SECONDS,
        help="how much time the exact log of a program's start may add; 0 switches it off (default: %(default)s)",
    )
    parser.add_argument("--audit", action="store_true", help="look for silent bugs in the first training step and in custom Functions")
    parser.add_argument("--guard", action="store_true", help="on a GPU: check every index before its kernel runs, and wait for each kernel (slow)")
    parser.add_argument("--strict", action="store_true", help="findings make the exit status 1, for CI")
    parser.add_argument("--verify", action="store_true", help="run a patched copy of the program to see that the fix helps")
    parser.add_argument("--repro", metavar="FILE", help="write a minimal program that fails in the same way")
    parser.add_argument("--history", type=_positive, metavar="N", help="how many events to remember (default: about a million)")
    parser.add_argument("--quiet", action="store_true", help="no report on the terminal")
    parser.add_argument("--verbose", action="store_true", help="say which recorder is used, and why")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as `python -m` does")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be positive")
    return value


def main(options: argparse.Namespace) -> int:
    from torchsleuth.errors import UsageError
    from torchsleuth.options import Options
    from torchsleuth.pipeline import Watch
    from torchsleuth.record.ring import DEFAULT_HISTORY

    if not options.program:
        raise UsageError("run what? Give a script, or -m and a module.")
    watch = Watch(
        Options(
            json=options.json,
            quiet=options.quiet,
            verbose=options.verbose,
            caught=options.caught,
            deep=options.deep,
            exact_seconds=max(0.0, options.exact),
            history=options.history or DEFAULT_HISTORY,
            verify=options.verify,
            repro=options.repro,
            remember=True,
            audit=options.audit,
            guard=options.guard,
        )
    )
    if options.guard:
        os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")  # read when CUDA starts
    name, *arguments = options.program
    if watch.replay is not None:
        from torchsleuth.verify.job import Launch

        watch.replay.launch = Launch(name, tuple(arguments), options.module, os.getcwd())
    return run_watched(name, arguments, options.module, watch, options.strict)


def run_watched(name: str, arguments: list[str], is_module: bool, watch: Watch, strict: bool) -> int:
    """The program's exit status; with `strict`, 1 for one that ended well and of which something was found."""
    from torchsleuth.program import run_module, run_script

    run = run_module if is_module else run_script
    if not strict:
        return run(name, arguments, watch)
    try:
        status = run(name, arguments, watch)
    except SystemExit as exit_:
        if exit_.code not in (None, 0) or watch.delivered is None:
            raise
        status = 0
    return 1 if status == 0 and watch.delivered is not None else status
