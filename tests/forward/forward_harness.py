"""Runs a failing program in this process under the recorder and diagnoses it, so that many programs cost one import of torch.

Lines of a program that the diagnosis must name are marked `#! role` at their end (`#! index`, `#! operand, create`).
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import torch

from torchsleuth import source
from torchsleuth.capture.collect import collect
from torchsleuth.capture.crash import Crash
from torchsleuth.diagnose import diagnose
from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis
from torchsleuth.record import tracebacks
from torchsleuth.record.recorder import Recorder

_MARK = re.compile(r"#! ([\w\-, ]+)$")
_numbers = itertools.count()


@dataclass
class Result:
    error: BaseException | None
    diagnosis: Diagnosis | None
    evidence: Evidence | None
    filename: str

    @property
    def lines(self) -> set[int]:
        return {culprit.span.line for culprit in self.diagnosis.culprits} if self.diagnosis else set()

    @property
    def text(self) -> str:
        """Everything the report says, in one string."""
        if self.diagnosis is None:
            return ""
        parts = [self.diagnosis.title, self.diagnosis.explanation, *(fact.text for fact in self.diagnosis.facts)]
        parts += [culprit.label for culprit in self.diagnosis.culprits] + [fix.title for fix in self.diagnosis.fixes]
        return "\n".join(parts)


@dataclass
class Case:
    name: str
    program: str
    rule: str
    says: tuple[str, ...] = ()
    late: bool | tuple[int, ...] = True  # without the operation log: all marked lines, some of them, or just these

    def marks(self) -> dict[int, list[str]]:
        found = {}
        for number, line in enumerate(self.program.split("\n"), 1):
            match = _MARK.search(line)
            if match:
                found[number] = [role.strip() for role in match[1].split(",")]
        return found


def run_program(program: str, log: bool = True) -> Result:
    """Executes the text as a script, and diagnoses the exception it ends with."""
    return run_program_with(program, {}, log)


def run_program_with(program: str, namespace: dict[str, object], log: bool = True) -> Result:
    """The same, with variables that are already there."""
    filename = f"/program/{next(_numbers)}/main.py"
    source.remember(filename, program.encode())
    linecache.cache[filename] = (len(program), None, [line + "\n" for line in program.split("\n")], filename)  # for TorchScript
    module = types.ModuleType("__main__")
    module.__file__ = filename
    module.__dict__.update(namespace)
    code = compile(program, filename, "exec", dont_inherit=True)
    recorder = Recorder(1 << 14, 60.0 if log else 0)
    error = None
    # torch.compile, once used by any test in this process, has switched this off for good (torch._dynamo's TorchPatcher).
    torch.distributions.Distribution.set_default_validate_args(True)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        recorder.start()
        try:
            exec(code, module.__dict__)
        except Exception as raised:
            error = raised
        finally:
            recorder.stop()
        if error is None:
            return Result(None, None, None, filename)
        while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        tracebacks.strip(error)
        crash = Crash(error, recorder.recording)
        diagnoses, evidence = diagnose(type(error).__name__, str(error), lambda needs: collect(crash, needs))
        return Result(error, diagnoses[0] if diagnoses else None, evidence, filename)
    finally:
        sys.modules["__main__"] = before
        torch.set_default_device(None)


def check(case: Case, log: bool = True) -> list[str]:
    """What is wrong with the diagnosis of a case: nothing, if it is as marked."""
    result = run_program(case.program, log)
    if result.error is None:
        return ["the program did not fail"]
    if result.diagnosis is None:
        return [f"no diagnosis of {type(result.error).__name__}: {str(result.error)[:200]}"]
    problems = []
    if result.diagnosis.rule != case.rule:
        problems.append(f"rule {result.diagnosis.rule}, not {case.rule} ({str(result.error)[:100]})")
    marks = case.marks()
    if result.lines != set(marks):
        problems.append(f"lines {sorted(result.lines)}, not {sorted(marks)}")
    by_line = {culprit.span.line: culprit.role.value for culprit in reversed(result.diagnosis.culprits)}
    for line, roles in marks.items():
        if line in by_line and by_line[line] not in roles:
            problems.append(f"line {line} has role {by_line[line]}, not {roles}")
    problems += [f"does not say {words!r}" for words in case.says if words not in result.text]
    if problems:
        problems.append(describe(result))
    return problems


def describe(result: Result) -> str:
    from io import StringIO

    from torchsleuth.model import Outcome, RaisedException, Report
    from torchsleuth.render import terminal

    stream = StringIO()
    report = Report("run", Outcome.CRASH, RaisedException("", ""), (result.diagnosis,) if result.diagnosis else ())
    terminal.show(report, terminal.console_for(stream))
    return stream.getvalue()


def library_folder() -> Path:
    import torch

    return Path(torch.__file__).parent.parent
