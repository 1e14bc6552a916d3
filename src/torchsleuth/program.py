"""Runs a script or module as `python` would: same `__main__`, argv, path, output, exit status and exception."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import threading
import tokenize
import types
import typing

from torchsleuth import env, source
from torchsleuth.errors import UsageError
from torchsleuth.offstage import Shadowed, frames_hidden
from torchsleuth.pipeline import Watch, causes


def run_script(path: str, arguments: list[str], watch: Watch) -> int:
    """`python path arguments…`; the exit status."""
    sys.argv = [path, *arguments]
    if path == "-":
        return _run_stdin(watch)
    if os.path.isdir(path) or _is_zip(path):
        folder = os.path.join(_cwd() or "", path)
        _set_first_path(folder, always=True)
        return _run(functools.partial(_run_as_main, "__main__", alter_argv=False), watch, folder)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}") from None
    folder = os.path.dirname(os.path.realpath(path))
    filename = os.path.join(_cwd() or "", path)
    loader: typing.Any = importlib.machinery.SourceFileLoader("__main__", filename)
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", filename)
        code = loader.get_code("__main__")
    else:
        try:
            code = _compiled(text, filename)
        except (SyntaxError, ValueError, LookupError) as error:
            return _refused_by_python(error, [path, *arguments], watch)
    source.remember(filename, text)
    _set_first_path(folder)
    main = _fresh_main(filename)
    main.__loader__ = loader
    return _run(lambda: exec(code, main.__dict__), watch, folder)


def run_module(name: str, arguments: list[str], watch: Watch) -> int:
    """`python -m name arguments…`."""
    sys.argv = ["-m", *arguments]
    home = os.getcwd()
    _set_first_path(home)
    return _run(functools.partial(_run_as_main, name), watch, home)


def _run_stdin(watch: Watch) -> int:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("run what? A program can be read from a pipe, not from a terminal.")
    text = sys.stdin.buffer.read()
    _set_first_path("")
    main = _fresh_main("<stdin>")
    main.__loader__ = importlib.machinery.BuiltinImporter
    source.remember("<stdin>", text)
    return _run(lambda: exec(compile(text, "<stdin>", "exec", dont_inherit=True), main.__dict__), watch, "")


def _run_as_main(name: str, alter_argv: bool = True) -> None:
    """As the interpreter does it for `-m`, a folder or an archive: a traceback begins with `runpy`'s own lines then, too."""
    import runpy

    _fresh_main(None)
    try:
        runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]
    except SystemExit as error:
        entry = error.__traceback__.tb_next if error.__traceback__ else None
        if entry is None or entry.tb_next is not None:
            raise
        refusal = str(error.code).removeprefix(f"{sys.executable}: ")  # runpy's own: there is nothing to run
    else:
        return
    raise UsageError(refusal)


def _compiled(text: bytes, filename: str) -> types.CodeType:
    """Raises where python would not take this for a program. (`compile` alone lets comments in any encoding pass.)"""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    text.decode(encoding)
    return compile(text, filename, "exec", dont_inherit=True)


def _refused_by_python(error: Exception, arguments: list[str], watch: Watch) -> int:
    """What is wrong with a text that is no program python says itself, in words that depend on how it reads the file."""
    import subprocess

    status = subprocess.call([sys.executable, *subprocess._args_from_interpreter_flags(), *arguments])  # type: ignore[attr-defined]
    if status != 0:
        watch.conclude(error if isinstance(error, SyntaxError) else SyntaxError(str(error)))
    return status


def _fresh_main(filename: str | None) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    main.__spec__ = None
    if env.MAIN_HAS_ANNOTATIONS:
        main.__dict__["__annotations__"] = {}
    if filename is not None:
        main.__file__ = filename
        main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    return main


def _set_first_path(path: str, always: bool = False) -> None:
    """`sys.path[0]` is our own command's folder; the program expects its own. With `-P` there is neither, but for an archive."""
    if sys.flags.safe_path:
        if always:
            sys.path.insert(0, path)
    elif sys.path:
        sys.path[0] = path
    else:
        sys.path.append(path)


def _is_zip(path: str) -> bool:
    import zipfile

    return os.path.isfile(path) and not path.endswith(".py") and zipfile.is_zipfile(path)


def _run(body: typing.Callable[[], object], watch: Watch, folder: str) -> int:
    home = _cwd()
    shadowed = Shadowed(folder)
    begin_with_torch(watch.start)
    _watch_threads(watch)
    shadowed.give_way()
    error: BaseException | None = None
    try:
        with frames_hidden(__file__):
            body()
    except SystemExit as exit_:
        with shadowed.back():
            _settle(watch, _died_of(exit_), home, handled=True)
        raise
    except UsageError:
        with shadowed.back():
            _settle(watch, None, home)
        raise
    except BaseException as raised:
        error = raised
    if error is None:
        with shadowed.back():
            _settle(watch, None, home)
        return 0
    watch.stop()
    _clean(error)
    try:
        _display(error)
    finally:
        with shadowed.back():
            _settle(watch, error, home)
    if isinstance(error, KeyboardInterrupt):
        # Let the interpreter end as it does for Ctrl-C (death by SIGINT), without a second traceback.
        sys.excepthook = lambda *_: None
        raise error
    return 1


def _display(error: BaseException) -> None:
    """As the interpreter does it for an exception that nobody caught; a `sys.excepthook` may be missing, or raise itself."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if env.HAS_LAST_EXC:
        sys.last_exc = error
    second: BaseException | None = None
    try:
        hook = getattr(sys, "excepthook", None)
        if hook is None:
            print("sys.excepthook is missing", file=sys.stderr)
            hook = sys.__excepthook__
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as raised:
        second = raised
    if second is not None:
        _clean(second)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(second), second, second.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def _died_of(exit_: SystemExit) -> BaseException | None:
    """The torch error that the program handled by leaving with a status of failure (`except …: print(…); sys.exit(1)`)."""
    error = exit_.__cause__ or exit_.__context__
    if exit_.code in (None, 0) or error is None or "torch" not in sys.modules:
        return None
    from torchsleuth.diagnose import is_nominated

    if not any(is_nominated(link) for link in causes(error)):
        return None
    _clean(error)
    return error


def _settle(watch: Watch, error: BaseException | None, home: str | None, handled: bool = False) -> None:
    """The report, written relative to where the program was started even if it has moved."""
    watch.stop()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    here = _cwd()
    moved = here != home and home is not None
    try:
        if moved:
            with contextlib.suppress(OSError):  # it may be gone
                os.chdir(home)
        watch.conclude(error, handled)
    finally:
        if moved and here is not None:
            with contextlib.suppress(OSError):
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
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    BaseException.with_traceback(error, traceback)
    tracebacks.strip(error)


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
