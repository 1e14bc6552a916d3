"""Finding Functions by name: `ops.py`, `ops.py:MyFunction`, `package.ops`, `package.ops:MyFunction`, and a folder of files.

The file is imported, as `import` would; while that runs, the inputs of every Function it applies are
captured, so that a file with an example at its end is checked on that example.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
import types
import typing

from torchsleuth.errors import UsageError


class Target(typing.NamedTuple):
    """A Function to check, and the inputs it was seen with, if it was."""

    function: type
    inputs: tuple | None


def targets_of(text: str) -> tuple[list[Target], list[str]]:
    """The Functions a command line names, and remarks about finding them."""
    if os.path.isdir(text):
        return _below(text)
    from torch.autograd import Function

    from torchsleuth.checker.live import FunctionWatch

    place, _, name = text.partition(":") if not _is_windows_path(text) else (text, "", "")
    watch = FunctionWatch()
    remarks: list[str] = []
    with watch, _settings_kept():
        module, error = _imported(place)
    if error is not None:
        remarks.append(f"{place} stopped with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    found = [
        value for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Function) and value.__module__ == module.__name__ and value.forward is not Function.forward
    ]  # fmt: skip
    if not found and hasattr(module, "__path__"):
        # A package that only hands on what its files define.
        inside = module.__name__ + "."
        found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Function) and (v.__module__ or "").startswith(inside)]
    found += [c for c in watch.seen() if c.__module__ == module.__name__ and c not in found]
    found = list(dict.fromkeys(found))
    if name:
        value = _attribute(module, name, place)
        if not (isinstance(value, type) and issubclass(value, Function)):
            raise UsageError(f"{name} in {place} is not a torch.autograd.Function but {_kind(value)}")
        found = [value]
    if not found:
        if error is not None:
            raise UsageError(f"{remarks[0]}, before it defined any torch.autograd.Function")
        raise UsageError(f"{place} defines no torch.autograd.Function")
    return [Target(function, watch.inputs_of(function)) for function in found], remarks


@contextlib.contextmanager
def _settings_kept() -> typing.Iterator[None]:
    """A file that moves its program to a GPU, or switches gradients off for it, does so for its own main part: inputs are made on the CPU."""
    import torch

    device, grad = torch.get_default_device(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_device(None if device.type == "cpu" else device)


def _below(folder: str) -> tuple[list[Target], list[str]]:
    """Every Function that the files below a folder define; files that define none are not imported."""
    targets: list[Target] = []
    remarks: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")) and f not in ("venv", "site-packages", "build"))
        for file in sorted(f for f in files if f.endswith(".py")):
            path = os.path.join(place, file)
            if not _defines_functions(path):
                continue
            try:
                found, said = targets_of(path)
            except UsageError as error:
                remarks.append(str(error))
            else:
                targets += found
                remarks += said
    if not targets:
        raise UsageError("; ".join(remarks) or f"no file below {folder} defines a torch.autograd.Function")
    return targets, remarks


def _defines_functions(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError):
        return False
    bases = [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any((base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) == "Function" for base in bases)


def _imported(place: str) -> tuple[types.ModuleType, BaseException | None]:
    if place.endswith(".py") or os.path.sep in place:
        if not os.path.isfile(place):
            raise UsageError(f"there is no file {place}")
        package, root = _package_of(place)
        if package:
            with _importable(root):
                return _module(package)
        name = os.path.splitext(os.path.basename(place))[0]
        name = name if name.isidentifier() and name not in sys.modules else f"_torchsleuth_checked_{abs(hash(os.path.abspath(place)))}"
        spec = importlib.util.spec_from_file_location(name, place)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        with _importable(os.path.dirname(os.path.abspath(place))):
            try:
                spec.loader.exec_module(module)
            except SyntaxError as error:
                raise UsageError(f"{place}:{error.lineno}: {error.msg}") from None
            except (Exception, SystemExit) as error:
                return module, error
        return module, None
    with _importable(os.getcwd()):
        try:
            return importlib.import_module(place), None
        except ModuleNotFoundError as error:
            raise UsageError(f"there is no module {place}: {error}") from None
        except Exception as error:
            raise UsageError(f"importing {place} raised {type(error).__name__}: {error}") from None


def _package_of(place: str) -> tuple[str, str]:
    """The name that a file of a package is imported by, and the folder to import it from; empty where it is in no package.

    Its relative imports mean nothing without the package.
    """
    folder, file = os.path.split(os.path.abspath(place))
    parts = [] if file == "__init__.py" else [os.path.splitext(file)[0]]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    known = sys.modules.get(parts[0]) if parts else None
    foreign = known is not None and os.path.join(folder, parts[0]) not in getattr(known, "__path__", ())
    return (".".join(parts), folder) if (len(parts) > 1 or file == "__init__.py") and parts and not foreign else ("", "")


def _module(name: str) -> tuple[types.ModuleType, BaseException | None]:
    """A module by its name in a package; what stops it half way leaves it as it is then, as for a file."""
    parent = name.rpartition(".")[0]
    try:
        if parent:
            importlib.import_module(parent)
        if name in sys.modules:
            return sys.modules[name], None
        spec = importlib.util.find_spec(name)
        module = importlib.util.module_from_spec(spec)
    except Exception as error:
        raise UsageError(f"importing the package {parent or name} raised {type(error).__name__}: {error}") from None
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        return module, error
    return module, None


@contextlib.contextmanager
def _importable(folder: str) -> typing.Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _attribute(module: types.ModuleType, name: str, place: str) -> typing.Any:
    value: typing.Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{place} has no {name}")
        value = getattr(value, part)
    return value


def _kind(value: typing.Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _is_windows_path(text: str) -> bool:
    return len(text) > 2 and text[1] == ":" and text[2] in "\\/" and text.count(":") == 1
