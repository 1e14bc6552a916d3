"""The verification run itself: `python -m torchsleuth.verify.child JOB`.

Starts the program as it was started, with patched text where the job says so (the files on disk are not touched),
and stops it as soon as the failing statement has been passed a few times.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import json
import linecache
import os
import random
import sys
import typing
from pathlib import Path

from torchsleuth.model import from_plain, lines_with_ends, to_plain
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.program import _fresh_main, _set_first_path, begin_with_torch
from torchsleuth.verify.instrument import BEGIN, MARK, marked
from torchsleuth.verify.job import Job, Result


class Overlay(importlib.abc.MetaPathFinder):
    """Imports the patched text of some files in place of what lies on disk."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._texts = {name: Path(copy).read_bytes() for name, copy in job.overlay.items()}
        # The failing statement is marked where it stands, which may be another file than the patched ones.
        self._files = {*self._texts, os.path.realpath(job.point_file)}

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) not in self._files:
            return None
        if not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        spec.loader = _OverlayLoader(spec.loader.name, spec.loader.path, self)
        spec.cached = None
        return spec

    def code_of(self, filename: str, fallback: bytes | None = None) -> typing.Any:
        real = os.path.realpath(filename)
        data = self._texts.get(real, fallback)
        if data is None:
            data = Path(filename).read_bytes()
        tree = ast.parse(data, filename)
        if real == os.path.realpath(self._job.point_file):
            marked(tree, self._job.point_line, self._job.point_column)
        if real in self._texts:
            text = data.decode(errors="replace")
            linecache.cache[filename] = (len(text), None, lines_with_ends(text), filename)
        return compile(tree, filename, "exec", dont_inherit=True)


class _OverlayLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, overlay: Overlay) -> None:
        super().__init__(name, path)
        self._overlay = overlay

    def get_code(self, fullname):
        return self._overlay.code_of(self.path)


class Run:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.observer: typing.Any = None
        self.reads_input = False

    # -- the program --------------------------------------------------------------------------

    def start(self) -> None:
        job, launch = self.job, self.job.launch
        overlay = Overlay(job)
        sys.meta_path.insert(0, overlay)
        setattr(builtins, MARK, lambda value=None: value)
        setattr(builtins, BEGIN, lambda: None)
        self._restore_states("python")
        begin_with_torch(self._on_torch)
        sys.stdin = _NoInput(self)
        try:
            if launch.is_module:
                self._module(overlay)
            else:
                self._script(overlay)
        except SystemExit as error:
            self.finish(ended=True, error=error if error.code not in (None, 0) else None)
        except BaseException as error:
            self.finish(ended=False, error=error)
        self.finish(ended=True)

    def _script(self, overlay: Overlay) -> None:
        launch = self.job.launch
        sys.argv = [launch.name, *launch.arguments]
        path = os.path.join(launch.directory, launch.name)
        _set_first_path(os.path.dirname(os.path.realpath(path)))
        main = _fresh_main(path)
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        exec(overlay.code_of(path), main.__dict__)

    def _module(self, overlay: Overlay) -> None:
        import runpy

        launch = self.job.launch
        sys.argv = ["-m", *launch.arguments]
        _set_first_path(launch.directory)
        _, spec, code = runpy._get_module_details(launch.name)  # type: ignore[attr-defined]
        sys.argv[0] = spec.origin
        main = _fresh_main(spec.origin)
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
        exec(overlay.code_of(spec.origin), main.__dict__)

    # -- torch --------------------------------------------------------------------------------

    def _on_torch(self) -> None:
        import torch

        from torchsleuth.verify import watching

        if self.job.seed is not None:
            torch.manual_seed(self.job.seed)
        self._restore_states("numpy")
        if self.job.copies_saved:
            watching.copy_saved_tensors()
        self.observer = watching.Observer(self.finish, self.note, self.job.visit)
        if self.job.seconds_for_differences:
            from torchsleuth.verify.differences import Differences

            self.observer.differences = Differences(self.observer, self.job.seconds_for_differences)
        self.observer.install()
        setattr(builtins, MARK, self.observer.passed)
        setattr(builtins, BEGIN, self.observer.begins)

    def _restore_states(self, which: str) -> None:
        if not self.job.states:
            return
        states = json.loads(Path(self.job.states).read_text())
        if which == "python" and states.get("python"):
            version, numbers, gauss = states["python"]
            random.setstate((version, tuple(numbers), gauss))
        if which == "numpy" and states.get("numpy") and "numpy" in sys.modules:
            import numpy

            kind, keys, *rest = states["numpy"]
            numpy.random.set_state((kind, numpy.array(keys, dtype="uint32"), *rest))

    # -- the answer ---------------------------------------------------------------------------

    def finish(self, ended: bool = False, error: BaseException | None = None) -> None:
        if self.observer is not None and self.observer.is_evaluating:
            os._exit(1)  # a forward pass for finite differences that did not get as far as backward
        self.note(ended, error)
        # The program is stopped where it stands: what it would do at its end is not ours to run.
        os._exit(0)

    def note(self, ended: bool = False, error: BaseException | None = None) -> None:
        observer = self.observer
        file, line = _place_of(error) if error is not None else ("", 0)
        result = Result(
            passes=observer.passes if observer else 0,
            begun=observer.begun if observer else 0,
            ended=ended,
            type=type(error).__name__ if error is not None else "",
            message=str(error) if error is not None else "",
            line=line,
            file=file,
            backwards=tuple(observer.backwards) if observer else (),
            backward_failed=bool(observer and observer.running),
            reads_input=self.reads_input,
            seen=tuple(observer.seen) if observer else (),
            differences=tuple(observer.differences.found) if observer and observer.differences else (),
            without_differences=observer.differences.refused if observer and observer.differences else "",
        )
        partial = f"{self.job.result}.part"
        Path(partial).write_text(json.dumps(to_plain(result)))
        os.replace(partial, self.job.result)


class _NoInput:
    """Standard input of a verification run: there is none, and asking for it is noted."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _refuse(self, *_):
        self._run.reads_input = True
        raise EOFError("a verification run has no standard input")

    read = readline = readlines = __iter__ = __next__ = _refuse
    encoding, errors, closed = "utf-8", "strict", False

    def fileno(self):
        self._run.reads_input = True
        raise OSError("a verification run has no standard input")

    def isatty(self):
        return False

    def close(self):
        pass

    def flush(self):
        pass


def _place_of(error: BaseException) -> tuple[str, int]:
    """The innermost line of the user's own in a traceback."""
    found = ("", 0)
    traceback = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if origin_of_file(filename) is Origin.USER:
            found = (filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def main(path: str) -> None:
    job = from_plain(Job, json.loads(Path(path).read_text()))
    os.chdir(job.launch.directory)
    Run(job).start()


if __name__ == "__main__":
    main(sys.argv[1])
