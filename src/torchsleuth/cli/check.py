"""Check custom torch.autograd.Functions: does backward return the derivative of forward, and if not, how is it wrong?

  torchsleuth check ops.py                                  every Function defined in a file, or below a folder
  torchsleuth check package.ops:MyFunction --shapes 1,32,100 1,32
  torchsleuth check ops.py:Embed --shapes 50,8 4,7:int64<50 =0.5

Inputs are, in this order: those of --shapes; those the file itself applies the Function to when it is
imported; those it is given in a call that can be read without running it; or else guessed, and then the report says so. Exit status: 0 right, 1 findings, 2 usage error.
"""

from __future__ import annotations

import argparse
import sys

from torchsleuth.cli._streams import take_any_character
from torchsleuth.errors import TorchsleuthError, UsageError

SUMMARY = "is a custom autograd Function right, and if not, how is it wrong?"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="+", help="a file, file.py:Function, module, module:Function or folder")
    parser.add_argument(
        "--shapes", nargs="+", metavar="SHAPE",
        help="one per input: 1,32,100 (float), 4,7:int64<50 (random integers below 50), 4,7:bool, () for a scalar, =VALUE for a plain value",
    )  # fmt: skip
    parser.add_argument("--dtype", default="float64", help="type of the random inputs made by --shapes (default: float64)")
    parser.add_argument("--device", default="cpu", help="where the random inputs are made (default: cpu)")
    parser.add_argument(
        "--strict", action="store_true",
        help="findings, not notes: surrogate gradients, a wrong second derivative though the file takes none, outputs that are views, an empty batch refused",
    )  # fmt: skip
    parser.add_argument("--accept-surrogate", action="store_true", help="with --strict: accept a backward that is not the derivative of forward on purpose")
    parser.add_argument("--seed", type=int, default=None, help="seed of the random directions and inputs")
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")


def main(options: argparse.Namespace) -> int:
    from torchsleuth.checker import check_trial
    from torchsleuth.checker.described import inputs_from
    from torchsleuth.checker.guess import guessed_inputs
    from torchsleuth.checker.load import targets_of
    from torchsleuth.checker.report import report_of
    from torchsleuth.render import json
    from torchsleuth.render.terminal import console_for, show

    take_any_character()
    targets, notes = [], []
    for text in options.target:
        found, said = targets_of(text)
        targets += found
        notes += said
    shown = " ".join(options.target)
    if options.shapes and len(targets) > 1:
        names = ", ".join(t.function.__name__ for t in targets)
        raise UsageError(f"--shapes needs one Function: {shown}:NAME, one of {names}")
    trials, failed = [], []
    for function, seen in targets:
        try:
            made = bool(options.shapes) or seen is None
            if options.shapes:
                inputs = inputs_from(options.shapes, options.dtype, options.device, options.seed)
            elif seen is not None:
                inputs = seen
                notes.append(f"{function.__name__}: checked on the inputs its file itself applies it to")
            else:
                inputs, how = guessed_inputs(function, options.seed)
                notes.append(f"{function.__name__}: {how}")
            trials.append(check_trial(function, *inputs, seed=options.seed, made=made))
        except TorchsleuthError as error:
            failed.append(str(error))
    if not trials:
        raise UsageError("; ".join(failed))
    accept = True if options.accept_surrogate else None
    report = report_of(trials, accept, (*notes, *(f"not checked: {text}" for text in failed)), options.strict)
    show(report, console_for(sys.stdout))
    wrong = [not report_of((trial,), True, strict=options.strict).ok for trial in trials]
    surrogates = sum(bool(trial.of_kind("not-derivative")) and not bad for trial, bad in zip(trials, wrong, strict=True))
    print(_summary(len(trials), sum(wrong), surrogates, len(failed)))
    if options.json:
        json.write(report, options.json)
    return 0 if report.ok and not failed else 1 if not report.ok else 2


def _summary(checked: int, wrong: int, surrogates: int, failed: int) -> str:
    plural = "s" * (checked != 1)
    out = f"{checked} Function{plural} checked: "
    counted = [f"{wrong} wrong"] * bool(wrong) + [f"{surrogates} with a surrogate gradient, apparently on purpose"] * bool(surrogates)
    out += ", ".join(counted) or ("all right" if checked > 1 else "right")
    return out + (f", {failed} not checked" if failed else "")
