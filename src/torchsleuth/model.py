"""Every type that crosses from one stage to another. Plain frozen data, standard library only.

`Diagnosis` and what it is made of (`Culprit`, `Fact`, `Fix`, `Verdict`) are shared by all commands:
`run` produces them from a crash, `lint` from source, `check` and `audit` from experiments, and every
renderer serves all of them through `Report`. What a stage finds out before it is judged lives beside
that stage (`evidence.py` for crashes).
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
import types
import typing

from torchsleuth.frozen import frozen

SCHEMA = 1


class Known(enum.StrEnum):
    """How a statement is known. Nothing in a report goes without it."""

    OBSERVED = "observed"  # recorded while the program ran, or read from live objects
    RECOMPUTED = "recomputed"  # a re-run or re-evaluation showed it
    INFERRED = "inferred"  # reasoning from source and evidence; said as such


class Role(enum.StrEnum):
    """The part a culprit played."""

    SAVE = "save"  # an operation kept this tensor for backward
    MUTATE = "mutate"  # this wrote into it
    INDEX = "index"  # this index is out of range or of the wrong kind
    OPERAND = "operand"  # this operand's shape, dtype or device does not fit
    CREATE = "create"  # where the offending size or value came from
    LOST_GRAD = "lost-grad"  # the gradient stops here
    RETURN_GRAD = "return-grad"  # this return of a `backward` is wrong
    LOOP = "loop"  # this Python loop should be a tensor operation
    CALL = "call"  # the program's call through which a library failed


class Confidence(enum.StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Applicability(enum.StrEnum):
    SAFE = "safe"  # keeps the meaning, apart from removing the failure
    UNSAFE = "unsafe"  # may change the meaning; the fix says how
    DISPLAY_ONLY = "display-only"  # advice; there is nothing to apply mechanically


class Status(enum.StrEnum):
    PASSED = "passed"
    SAME_FAILURE = "same-failure"
    NEW_FAILURE = "new-failure"
    NOT_RUN = "not-run"


class Outcome(enum.StrEnum):
    CRASH = "crash"
    FINDINGS = "findings"
    OK = "ok"


@frozen
class Span:
    """A range of source text: 1-based lines and columns, `end_column` just past the last character.

    Columns count characters, not bytes. `file` is relative to the working directory where it lies
    below it, and a label such as `<cell 3>` where there is no file.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@frozen
class Excerpt:
    """Source lines to show around a span; `first` is the number of `lines[0]`."""

    first: int
    lines: tuple[str, ...]


@frozen
class Culprit:
    """A source expression with the part it played, and how that is known."""

    role: Role
    span: Span
    source: str  # the expression itself
    known: Known
    label: str = ""  # one line said beside the underlined expression
    excerpt: Excerpt | None = None
    function: str = ""  # the function the expression stands in


@frozen
class Fact:
    text: str
    known: Known


@frozen
class Edit:
    """Replace the text at `span` by `replacement`, if the file still has the content hashed here."""

    span: Span
    replacement: str
    source_hash: str  # sha256 of the whole file the edit was made for


@frozen
class Verdict:
    """What a re-run of the patched program proved, and in `text` what it did not."""

    status: Status
    text: str = ""


NOT_RUN = Verdict(Status.NOT_RUN, "not run")


@frozen
class Fix:
    title: str
    applicability: Applicability
    edits: tuple[Edit, ...] = ()
    diff: str = ""
    verdict: Verdict = NOT_RUN
    meaning: str = ""  # what the change does to the meaning of the program, where it does


@frozen
class Diagnosis:
    """What went wrong, who did it, how that is known and what to change. First culprit first."""

    rule: str
    title: str
    confidence: Confidence
    culprits: tuple[Culprit, ...] = ()
    facts: tuple[Fact, ...] = ()
    explanation: str = ""
    fixes: tuple[Fix, ...] = ()


@frozen
class RaisedException:
    type: str
    message: str


@frozen
class Report:
    """The only input of every renderer. As a value it shows itself: `print(report)`, or the last line of a notebook's cell."""

    command: str
    outcome: Outcome
    exception: RaisedException | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()  # about torchsleuth's own work: what limited its precision

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def __repr__(self) -> str:
        found = [f"{d.rule} at {d.culprits[0].span.file}:{d.culprits[0].span.line}" if d.culprits else d.rule for d in self.diagnoses]
        return f"<Report of {self.command}: {self.outcome.value}{'; ' * bool(found)}{', '.join(found)}>"

    def __str__(self) -> str:
        from torchsleuth.render import notebook  # a renderer, known here only by the one who asks to be shown

        return notebook.text(self)

    def _repr_html_(self) -> str:
        from torchsleuth.render import notebook

        return notebook.html(self)


def lines_with_ends(text: str) -> list[str]:
    """A file's lines as Python counts them: `str.splitlines` also ends one at a form feed, which may stand anywhere in a source."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def unified_diff(file: str, before: str, after: str) -> str:
    """The change to one file in the form `patch` and `git apply` take."""
    lines = difflib.unified_diff(lines_with_ends(before), lines_with_ends(after), f"a/{file}", f"b/{file}")
    out: list[str] = []
    for line in lines:
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


# ---------------------------------------------------------------------------------------------
# Plain data and back. One generic pair of functions serves every dataclass in the house, so a
# type that crosses a process border needs no code of its own.


def to_plain(value: object) -> object:
    """Dataclasses, enums, tuples and dicts as JSON-ready data."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list, frozenset, set)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: typing.Any, data: typing.Any) -> typing.Any:
    """The inverse of `to_plain` for a dataclass, enum, tuple, dict, optional or scalar type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        (inner,) = (a for a in arguments if a is not types.NoneType)
        return from_plain(inner, data)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(from_plain(arguments[0], item) for item in data)
        return tuple(from_plain(a, item) for a, item in zip(arguments, data, strict=True))
    if origin is dict:
        return {from_plain(arguments[0], k): from_plain(arguments[1], v) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {f.name for f in dataclasses.fields(kind)}
        return kind(**{k: from_plain(hints[k], v) for k, v in data.items() if k in fields})
    return data
