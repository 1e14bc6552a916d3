"""Many files at once: read, look up in the cache, lint the rest on all cores, hand back plain results.

The cache is keyed by the file's content and by torchsleuth's own lint code, so it can never be stale; it is
a small database in the user's cache folder and losing it only costs time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchsleuth import model
from torchsleuth.linter.source import Unreadable, source_from

# Stands for the file's name in cached results: the same content may lie under many names.
LABEL = "\x00file"
# Fewer files than this are not worth starting processes for.
WORTH_A_POOL = 12
COLLECTED_AFTER = 4_000_000  # bytes of source whose trees may lie around: about 300 MB
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class FileResult:
    path: str
    label: str
    diagnoses: list[model.Diagnosis] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    problem: str = ""  # why it could not be linted
    is_broken_source: bool = False  # the problem is in the text itself, not in reaching it


def swept(paths: list[str], labels: list[str], jobs: int, cache_at: Path | None, progress: Progress | None) -> list[FileResult]:
    """The result of every file, in the order given."""
    results: dict[int, FileResult] = {}
    pending: list[tuple[int, str, bytes, str]] = []
    cache = Cache(cache_at) if cache_at is not None else None
    for place, (path, label) in enumerate(zip(paths, labels, strict=True)):
        data, problem = read_bytes(path)
        if data is None:
            results[place] = FileResult(path, label, problem=problem)
            continue
        suffix = ".ipynb" if label.endswith(".ipynb") else ".py"
        key = hashlib.sha256(data).hexdigest() + suffix
        known = cache.get(key) if cache else None
        if known is not None:
            results[place] = _materialised(path, label, known)
        else:
            pending.append((place, key, data, suffix))
    done = len(results)
    if progress and paths:
        progress(done, len(paths))
    for place, key, text in _linted(pending, jobs):
        if cache:
            cache.put(key, text)
        results[place] = _materialised(paths[place], labels[place], text)
        done += 1
        if progress and (done % 16 == 0 or done == len(paths)):
            progress(done, len(paths))
    if cache:
        cache.close()
    return [results[place] for place in range(len(paths))]


def read_bytes(path: str) -> tuple[bytes | None, str]:
    try:
        with open(path, "rb") as stream:
            return stream.read(), ""
    except OSError as error:
        return None, (error.strerror or str(error)).lower()


def _linted(pending: list[tuple[int, str, bytes, str]], jobs: int) -> Iterable[tuple[int, str, str]]:
    size = sum(len(data) for _, _, data, _ in pending)
    if jobs <= 1 or len(pending) < WORTH_A_POOL or size < 200_000:
        for place, key, data, suffix in pending:
            yield place, key, linted_text(data, suffix)
        return
    import multiprocessing

    from torchsleuth.linter.engine import lint_rules

    lint_rules()  # imported once here, inherited by every worker that is forked
    method = "fork" if sys.platform == "linux" else None
    # Largest first, so that no worker is left with a giant at the end.
    work = sorted(((data, suffix, place, key) for place, key, data, suffix in pending), key=lambda w: -len(w[0]))
    with multiprocessing.get_context(method).Pool(jobs, initializer=_calm) as pool:
        for place, key, text in pool.imap_unordered(_job, work, chunksize=4):
            yield place, key, text


_since_collected = 0  # bytes of source, in a worker


def _calm() -> None:
    """In a worker: cycles are collected between files only (within one, millions of nodes live on), and silence on Ctrl-C."""
    import gc
    import signal

    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _job(work: tuple[bytes, str, int, str]) -> tuple[int, str, str]:
    global _since_collected
    data, suffix, place, key = work
    text = linted_text(data, suffix)
    _since_collected += len(data)
    if _since_collected > COLLECTED_AFTER:
        import gc

        gc.collect()
        _since_collected = 0
    return place, key, text


def linted_text(data: bytes, suffix: str) -> str:
    """One file's result as JSON text, with `LABEL` for its name."""
    from torchsleuth.linter.engine import linted

    label = LABEL + (".ipynb" if suffix == ".ipynb" else "")
    try:
        source = source_from(data, label)
    except Unreadable as problem:
        return json.dumps({"problem": str(problem)})
    except RecursionError:
        return json.dumps({"problem": "is nested too deeply to be linted"})
    try:
        outcome = linted(source)
    except RecursionError:
        return json.dumps({"problem": "is nested too deeply to be linted"})
    except Exception as error:
        if os.environ.get("TORCHSLEUTH_DEBUG"):
            raise
        return json.dumps({"problem": f"torchsleuth failed on it ({type(error).__name__}: {error}); please report this"})
    if not outcome.diagnoses and not outcome.remarks:
        return "{}"
    return json.dumps({"d": [model.to_plain(d) for d in outcome.diagnoses], "r": outcome.remarks})


def _materialised(path: str, label: str, text: str) -> FileResult:
    result = FileResult(path, label)
    if text == "{}":
        return result
    escaped = json.dumps(LABEL)[1:-1]
    name = json.dumps(label)[1:-1]
    data = json.loads(text.replace(escaped + ".ipynb", name) if label.endswith(".ipynb") else text.replace(escaped, name))
    if "problem" in data:
        result.problem, result.is_broken_source = data["problem"], True
        return result
    result.diagnoses = [diagnosis_from(d) for d in data["d"]]
    result.remarks = [(line, remark) for line, remark in data["r"]]
    return result


def diagnosis_from(data: dict[str, typing.Any]) -> model.Diagnosis:
    """`model.from_plain` for a diagnosis, written out: it runs once per cached finding."""

    def span(s):
        return model.Span(**s)

    def culprit(c):
        shown = c["excerpt"]
        excerpt = model.Excerpt(shown["first"], tuple(shown["lines"])) if shown else None
        return model.Culprit(model.Role(c["role"]), span(c["span"]), c["source"], model.Known(c["known"]), c["label"], excerpt, c["function"])

    def fix(f):
        edits = tuple(model.Edit(span(e["span"]), e["replacement"], e["source_hash"]) for e in f["edits"])
        verdict = model.Verdict(model.Status(f["verdict"]["status"]), f["verdict"]["text"])
        return model.Fix(f["title"], model.Applicability(f["applicability"]), edits, f["diff"], verdict, f["meaning"])

    return model.Diagnosis(
        data["rule"],
        data["title"],
        model.Confidence(data["confidence"]),
        tuple(culprit(c) for c in data["culprits"]),
        tuple(model.Fact(f["text"], model.Known(f["known"])) for f in data["facts"]),
        data["explanation"],
        tuple(fix(f) for f in data["fixes"]),
    )


class Cache:
    """Content hash -> result text. Every failure of the database means only: no cache this time."""

    def __init__(self, folder: Path) -> None:
        import sqlite3

        self.errors = (sqlite3.Error, OSError)
        self.known: dict[str, str] = {}
        self.fresh: list[tuple[str, str]] = []
        self.database = None
        fingerprint = code_fingerprint()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.database = sqlite3.connect(folder / "lint.sqlite3", timeout=5)
            self.database.execute("PRAGMA journal_mode=WAL")
            self.database.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, code TEXT, text TEXT)")
            if self.database.execute("SELECT 1 FROM results WHERE code != ? LIMIT 1", (fingerprint,)).fetchone():
                self.database.execute("DELETE FROM results WHERE code != ?", (fingerprint,))
            self.database.commit()  # no lock is held while files are read: another run may be at work
            self.known = dict(self.database.execute("SELECT key, text FROM results"))
            self.fingerprint = fingerprint
        except self.errors:
            self.database = None
            _discard(folder / "lint.sqlite3")

    def get(self, key: str) -> str | None:
        return self.known.get(key)

    def put(self, key: str, text: str) -> None:
        self.fresh.append((key, text))

    def close(self) -> None:
        if self.database is None:
            return
        try:
            rows = [(key, self.fingerprint, text) for key, text in self.fresh]
            self.database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", rows)
            self.database.commit()
            self.database.close()
        except self.errors:
            pass


def _discard(file: Path) -> None:
    """A damaged database is thrown away; the next run starts a new one."""
    try:
        file.unlink(missing_ok=True)
    except OSError:
        pass


def code_fingerprint() -> str:
    """Changes whenever torchsleuth's lint code, or the Python that parses, changes."""
    package = Path(__file__).parent.parent
    parts = [sys.version]
    for folder in (package / "linter", package / "rules" / "source"):
        for file in sorted(folder.rglob("*.py")):
            info = file.stat()
            parts.append(f"{file.name}:{info.st_mtime_ns}:{info.st_size}")
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    home = os.path.expanduser("~")
    if not base and home.startswith("~"):  # nobody's home: some containers
        import tempfile

        base = tempfile.gettempdir()
    return (Path(base) if base else Path(home) / ".cache") / "torchsleuth"
