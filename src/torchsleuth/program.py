"""Runs a script or module as `python` would: same `__main__`, argv, path, output, exit status and exception."""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import threading
import types
import typing

from torchsleuth import source
from torchsleuth.errors import UsageError
from torchsleuth.pipeline import Watch


def run_script(path: str, arguments: list[str], watch: Watch) -> int:
    """`python path arguments…`; the exit status."""
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or _is_zip(path):
        import runpy

        _set_first_path(path)
        return _run(lambda: runpy.run_path(path, run_name="__main__"), watch)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}") from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    filename = os.path.join(os.getcwd(), path)
    main = _fresh_main(filename)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", filename)
    source.remember(filename, text)

    def body() -> None:
        exec(compile(text, filename, "exec", dont_inherit=True), main.__dict__)

    return _run(body, watch)


def run_module(name: str, arguments: list[str], watch: Watch) -> int:
    """`python -m name arguments…`."""
    import runpy

    sys.argv = ["-m", *arguments]
    _set_first_path(os.getcwd())
    try:
        _, spec, code = runpy._get_module_details(name, UsageError)  # type: ignore[attr-defined]
    except UsageError as error:
        raise UsageError(str(error)) from None
    sys.argv[0] = spec.origin
    main = _fresh_main(spec.origin)
    main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    main.__cached__ = spec.cached
    return _run(lambda: exec(code, main.__dict__), watch)


def _fresh_main(filename: str) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__file__ = filename
    main.__builtins__ = builtins
    main.__spec__ = None
    main.__dict__["__annotations__"] = {}
    main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    return main


def _set_first_path(path: str) -> None:
    """`sys.path[0]` is our own script's folder; the program expects its own."""
    if sys.path:
        sys.path[0] = path
    else:
        sys.path.append(path)


def _is_zip(path: str) -> bool:
    import zipfile

    return os.path.isfile(path) and not path.endswith(".py") and zipfile.is_zipfile(path)


def _run(body: typing.Callable[[], object], watch: Watch) -> int:
    home = os.getcwd()
    begin_with_torch(watch.start)
    _watch_threads(watch)
    try:
        body()
    except SystemExit:
        _settle(watch, None, home)
        raise
    except BaseException as error:
        watch.stop()
        _clean(error)
        sys.excepthook(type(error), error, error.__traceback__)
        _settle(watch, error, home)
        if isinstance(error, KeyboardInterrupt):
            # Let the interpreter end as it does for Ctrl-C (death by SIGINT), without a second traceback.
            sys.excepthook = lambda *_: None
            raise
        return 1
    _settle(watch, None, home)
    return 0


def _settle(watch: Watch, error: BaseException | None, home: str) -> None:
    """The report, written relative to where the program was started even if it has moved."""
    watch.stop()
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            pass
    here = _cwd()
    try:
        if here != home:
            os.chdir(home)
        watch.conclude(error)
    finally:
        if here is not None and here != home:
            os.chdir(here)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _clean(error: BaseException) -> None:
    """Drop the frames that are ours from the outer end and, after the operation log, from within."""
    from torchsleuth.record import tracebacks

    traceback = error.__traceback__
    while traceback is not None and not _is_programs(traceback.tb_frame):
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    tracebacks.strip(error)


def _is_programs(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename != __file__ and "runpy" not in frame.f_code.co_filename


def _watch_threads(watch: Watch) -> None:
    before = threading.excepthook

    def on_thread_exception(arguments):
        before(arguments)
        if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
            watch.conclude_thread(arguments.exc_value)

    threading.excepthook = on_thread_exception


# -- torch ----------------------------------------------------------------------------------------


def begin_with_torch(begin: typing.Callable[[], None]) -> None:
    """Call `begin` once torch has been imported by the program, or now if it has been.

    Importing it earlier would take away the program's chance to set OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES and the like.
    """
    if "torch" in sys.modules:
        begin()
    else:
        sys.meta_path.insert(0, _TorchNoticer(begin))


class _TorchNoticer(importlib.abc.MetaPathFinder):
    def __init__(self, begin: typing.Callable[[], None]) -> None:
        self._begin = begin

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _NoticingLoader(spec.loader, self._begin)
        return spec


class _NoticingLoader(importlib.abc.Loader):
    """Stands in for torch's loader until torch is loaded, then puts the real one back."""

    def __init__(self, loader: typing.Any, begin: typing.Callable[[], None]) -> None:
        self._loader, self._begin = loader, begin

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._begin()

    def __getattr__(self, name):
        return getattr(self._loader, name)
