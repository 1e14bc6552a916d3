"""Find it in the source: slow loops, in-place hazards, lost gradients, wrong training loops.

Reads Python files and notebooks without importing or running them. With --prove, --diff or --fix the loops
it can rewrite are extracted and run in a subprocess, old against new, and only proven rewrites are applied.

exit status: 0 nothing found, 1 something found, 2 something could not be read or the command makes no sense
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from torchsleuth import model
from torchsleuth.cli._streams import print_json, take_any_character
from torchsleuth.errors import UsageError

SUMMARY = "find problems in source without running it, and rewrite slow loops"
FORMATS = ("full", "concise", "json", "sarif", "github")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, notebooks, directories, or - for standard input (default: .)")
    fixing = parser.add_argument_group("fixes")
    fixing.add_argument("--fix", action="store_true", help="apply the fixes that are safe or proven")
    fixing.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: also those that could not be proven")
    fixing.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    fixing.add_argument("--prove", action="store_true", help="run each loop and its rewrite against one another, change nothing")
    choice = parser.add_argument_group("what to look for")
    choice.add_argument("--select", action="append", metavar="RULES", help="only these rules (comma separated; `all` for every rule)")
    choice.add_argument("--extend-select", action="append", metavar="RULES", help="these rules too")
    choice.add_argument("--ignore", action="append", metavar="RULES", help="not these rules")
    choice.add_argument("--exclude", action="append", metavar="PATTERNS", help="leave out files and folders that match")
    choice.add_argument("--config", metavar="FILE", help="a pyproject.toml to use instead of the nearest one")
    choice.add_argument("--isolated", action="store_true", help="use no pyproject.toml")
    choice.add_argument("--list-rules", action="store_true", help="list the rules and stop")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, default="full", help="how findings are printed (default: full)")
    output.add_argument("--json", metavar="FILE", help="also write the JSON report to FILE (- for standard output)")
    output.add_argument("--sarif", metavar="FILE", help="also write SARIF 2.1.0 to FILE (- for standard output)")
    output.add_argument("--verbose", action="store_true", help="also say which loops were left alone, and why")
    output.add_argument("--quiet", action="store_true", help="print nothing but findings and errors")
    output.add_argument("--exit-zero", action="store_true", help="exit with 0 even when there are findings")
    work = parser.add_argument_group("how to work")
    work.add_argument("--stdin-filename", metavar="NAME", default="<stdin>", help="the name standard input goes by")
    work.add_argument("--jobs", type=int, default=0, metavar="N", help="processes to use (default: one per core)")
    work.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")
    work.add_argument("--cache-dir", metavar="DIR", help="where the cache lies (default: the user's cache folder)")


def main(options: argparse.Namespace) -> int:
    from torchsleuth.linter.engine import lint_rules

    take_any_character()
    rules = {rule.name: rule for rule in lint_rules()}
    if options.list_rules:
        for rule in rules.values():
            print(f"{rule.name:<34} {'' if rule.default else '(off by default) '}{rule.page().summary}")
        return 0
    config = _config(options, frozenset(rules))
    run = _Run(options, config, rules)
    if "-" in options.paths:
        if len(options.paths) > 1:
            raise UsageError("`-` (standard input) cannot be combined with other paths")
        return run.stdin()
    return run.files(options.paths or ["."])


def _config(options: argparse.Namespace, known: frozenset[str]):
    from torchsleuth.linter import config as configs

    if options.isolated:
        config = configs.Config(root=Path.cwd())
    elif options.config:
        config = configs.config_from(Path(options.config), known)
    else:
        first = next((p for p in options.paths if p != "-"), ".")
        config = configs.found_config(Path(first), known)
    for name in ("select", "extend_select", "ignore", "exclude"):
        given = getattr(options, name)
        if given:
            values = tuple(v.strip() for text in given for v in text.split(",") if v.strip())
            if name != "exclude":
                values = configs.checked_rules(values, known, f"--{name.replace('_', '-')}")
            if name in ("ignore", "exclude"):
                values = getattr(config, name) + values
            config = dataclasses.replace(config, **{name: values})
    return config


class _Run:
    """One invocation: lint, prove or fix, and say it in the wanted format."""

    def __init__(self, options, config, rules) -> None:
        self.options, self.config, self.rules = options, config, rules
        self.notes: list[str] = []
        self.problems: list[str] = []  # those of the notes that say what could not be linted
        self.found: list[model.Diagnosis] = []
        self.failed = False  # something could not be read
        self.broken = False  # something does not parse
        self.applied = 0
        self.diffs: list[str] = []

    @property
    def runs_proofs(self) -> bool:
        return self.options.fix or self.options.diff or self.options.prove

    def wants(self, path: str):
        relative = os.path.relpath(os.path.abspath(path), self.config.root)
        return lambda d: self.config.wants(d.rule, self.rules[d.rule].default, relative)

    # Sources ----------------------------------------------------------------------------------

    def stdin(self) -> int:
        from torchsleuth.linter.source import Unreadable
        from torchsleuth.linter.sweep import FileResult, _materialised, linted_text

        name = self.options.stdin_filename
        data = sys.stdin.buffer.read()
        text = linted_text(data, ".ipynb" if name.endswith(".ipynb") else ".py")
        result: FileResult = _materialised(name, name, text)
        if result.problem:
            self._problem(result)
        elif self.runs_proofs:
            try:
                data = self._rework(name, name, data)
            except Unreadable as problem:
                self._say(f"{name}: {problem}")
        else:
            self._take(result)
        if self.options.fix and not self.options.diff:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
            return self._finish(1, to_stderr=True)
        return self._finish(1)

    def files(self, paths: list[str]) -> int:
        from torchsleuth.linter.files import files_below, label_of
        from torchsleuth.linter.sweep import cache_folder, swept

        files, problems = files_below(paths, self.config)
        for problem in problems:
            self._say(problem)
            self.failed = True
        if not files and not problems and not self.options.quiet:
            print("torchsleuth: no Python files or notebooks there", file=sys.stderr)
        labels = [label_of(file) for file in files]
        cache_at = None
        if not self.options.no_cache:
            cache_at = Path(self.options.cache_dir) if self.options.cache_dir else cache_folder()
        bar = _Bar(len(files)) if not self.options.quiet else None
        results = swept(files, labels, self.options.jobs or cores(), cache_at, bar)
        if bar:
            bar.clear()
        for result in results:
            if result.problem:
                self._problem(result)
            elif self.runs_proofs and self._has_edits(result):
                self._rework_file(result)
            else:
                self._take(result)
        return self._finish(len(files))

    def _has_edits(self, result) -> bool:
        wanted = self.wants(result.path)
        return any(fix.edits for d in result.diagnoses if wanted(d) for fix in d.fixes)

    def _rework_file(self, result) -> None:
        from torchsleuth.linter.source import Unreadable
        from torchsleuth.linter.sweep import read_bytes

        data, problem = read_bytes(result.path)
        if data is None:
            self._say(f"{result.label}: {problem}")
            self.failed = True
            return
        try:
            after = self._rework(result.path, result.label, data)
        except Unreadable as problem:
            self._say(f"{result.label}: {problem}")
            self._take(result)
            return
        if self.options.fix and not self.options.diff and after != data:
            try:
                write_over(result.path, after)
            except OSError as error:
                self._say(f"{result.label}: cannot be written: {(error.strerror or str(error)).lower()}")
                self.failed = True

    def _rework(self, path: str, label: str, data: bytes) -> bytes:
        """Prove, and where asked fix; the new content."""
        from torchsleuth.linter.edits import decoded
        from torchsleuth.linter.fixing import fixed, proven_outcome

        wanted = self.wants(path)
        if not (self.options.fix or self.options.diff):
            outcome = proven_outcome(data, label, wanted)
            self._take_outcome(label, outcome.diagnoses, outcome.remarks)
            return data
        result = fixed(data, label, wanted, self.options.unsafe_fixes)
        self.applied += len(result.applied)
        for diagnosis, fix in result.applied:
            where = diagnosis.culprits[0].span
            done = "would fix" if self.options.diff else "fixed"
            self._note(f"{where.file}:{where.line}: {done} {diagnosis.rule}: {fix.title}{_because(fix)}")
            for fact in diagnosis.facts:
                self._note(f"  {fact.text}")
        if self.options.diff and result.data != data:
            before, after = (decoded(d).replace("\r\n", "\n") for d in (data, result.data))
            self.diffs.append(model.unified_diff(label, before, after))
        self._take_outcome(label, result.left, result.remarks)
        return result.data

    def _take(self, result) -> None:
        wanted = self.wants(result.path)
        self._take_outcome(result.label, [d for d in result.diagnoses if wanted(d)], result.remarks)

    def _take_outcome(self, label: str, diagnoses, remarks) -> None:
        self.found += diagnoses
        if self.options.verbose:
            self.notes += [f"{label}:{line}: {text}" for line, text in remarks]

    def _problem(self, result) -> None:
        self._say(f"{result.label}: {result.problem}")
        if result.is_broken_source:
            self.broken = True
        else:
            self.failed = True

    def _say(self, line: str) -> None:
        """A line about something that could not be linted: always on standard error, and in the report."""
        print(f"torchsleuth: {line}", file=sys.stderr)
        self.notes.append(line)
        self.problems.append(line)

    def _note(self, line: str) -> None:
        if not self.options.quiet:
            print(line, file=sys.stderr)
        self.notes.append(line)

    # Output -----------------------------------------------------------------------------------

    def _finish(self, files: int, to_stderr: bool = False) -> int:
        outcome = model.Outcome.FINDINGS if self.found else model.Outcome.OK
        report = model.Report("lint", outcome, None, tuple(self.found), tuple(self.notes))
        stream = sys.stderr if to_stderr else sys.stdout
        for diff in self.diffs:
            print(diff, end="", file=stream)
        if not self.options.diff or self.options.format not in ("full", "concise"):
            self._print(report, stream)
        for option, text in (("json", self._json), ("sarif", self._sarif)):
            target = getattr(self.options, option)
            if target == "-":
                print_json(text(report))
            elif target:
                try:
                    Path(target).write_text(text(report), encoding="utf-8")
                except OSError as error:
                    raise UsageError(f"cannot write {target}: {error.strerror}") from None
        if self.options.format in ("full", "concise") and not self.options.quiet:
            self._summary(files)
        if self.failed:
            return 2
        if self.options.exit_zero:
            return 0
        return 1 if self.found or self.broken or (self.options.diff and self.diffs) else 0

    def _print(self, report: model.Report, stream) -> None:
        style = self.options.format
        if style == "json":
            print_json(self._json(report), stream)
        elif style == "sarif":
            print_json(self._sarif(report), stream)
        elif style == "github":
            from torchsleuth.render import github

            print(github.as_text(report), end="", file=stream)
        elif style == "concise":
            for diagnosis in report.diagnoses:
                span = diagnosis.culprits[0].span
                print(f"{span.file}:{span.line}:{span.column}: {diagnosis.rule}: {diagnosis.title}", file=stream)
            if self.options.verbose:
                for note in report.notes:
                    print(f"note: {note}", file=stream)
        elif report.diagnoses or self.options.verbose:
            from torchsleuth.render import terminal

            notes = report.notes if self.options.verbose else ()
            terminal.show(dataclasses.replace(report, notes=notes), terminal.console_for(stream))

    def _json(self, report: model.Report) -> str:
        from torchsleuth.render import json as json_report

        return json_report.as_text(report)

    def _sarif(self, report: model.Report) -> str:
        import importlib.metadata

        from torchsleuth.render import sarif

        pages = {name: rule.page() for name, rule in self.rules.items()}
        return sarif.as_text(report, pages, importlib.metadata.version("torchsleuth"), self.problems, not self.failed)

    def _summary(self, files: int) -> None:
        found = len(self.found)
        where = f"{files} file{'s' * (files != 1)}"
        parts = [f"{found} problem{'s' * (found != 1)} in {where}" if found else f"nothing found in {where}"]
        if self.applied:
            parts.append(f"{self.applied} {'would be ' if self.options.diff else ''}fixed")
        if not self.runs_proofs:
            loops = sum(d.rule == "loop-over-tensor" and any(f.edits for f in d.fixes) for d in self.found)
            safe = sum(any(f.edits and f.applicability is model.Applicability.SAFE for f in d.fixes) for d in self.found)
            if safe:
                parts.append(f"{safe} can be fixed with --fix")
            if loops:
                parts.append(f"{loops} loop rewrite{'s' * (loops != 1)} to prove with --prove or --fix")
        print("torchsleuth: " + "; ".join(parts), file=sys.stderr)


def _because(fix: model.Fix) -> str:
    if fix.verdict.status is model.Status.PASSED:
        return f" ({fix.verdict.text})"
    return " (safe by construction)" if fix.applicability is model.Applicability.SAFE else " (unsafe: not proven)"


def write_over(path: str, data: bytes) -> None:
    """Replace a file's content in one step, keeping its mode and following a symbolic link to the real file."""
    real = os.path.realpath(path)
    mode = os.stat(real).st_mode
    temporary = f"{real}.torchsleuth-{os.getpid()}"
    try:
        with open(temporary, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class _Bar:
    """A progress line on a terminal, for trees large enough to wait for."""

    def __init__(self, total: int) -> None:
        self.shown = False
        self.is_wanted = total >= 60 and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self.is_wanted:
            return
        width = 30
        full = width * done // max(total, 1)
        print(f"\r  [{'#' * full}{'.' * (width - full)}] {done}/{total} files", end="", file=sys.stderr, flush=True)
        self.shown = True

    def clear(self) -> None:
        if self.shown:
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)
