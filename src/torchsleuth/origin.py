"""Whose code is it? Decides by file name: the user's, a library's, torch's, the standard library's or ours."""

from __future__ import annotations

import enum
import functools
import os
import sys
import sysconfig
import types


class Origin(enum.Enum):
    USER = "user"
    LIBRARY = "library"
    TORCH = "torch"
    STDLIB = "stdlib"
    OURS = "torchsleuth"

    @property
    def is_program(self) -> bool:
        """Recorded: everything but torch, the standard library and torchsleuth."""
        return self is Origin.USER or self is Origin.LIBRARY


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_DEMO = _HERE + "demo" + os.sep  # the built-in failing programs play the user's part
_SITE_MARKS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PATHS = sysconfig.get_paths()
_STDLIB = tuple({os.path.join(_PATHS[key], "") for key in ("stdlib", "platstdlib")})
_COMMAND = os.path.join(_PATHS["scripts"], "torchsleuth")  # the installed command
_TORCH_PACKAGES = ("torch", "torchgen", "functorch")
# What torch itself stands on and imports late (the first optimizer pulls in sympy): no tensor operation starts there,
# and recording the import would cost a second.
_GROUND = frozenset({
    "sympy", "mpmath", "networkx", "numpy", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions.py",
    "setuptools", "pkg_resources", "_distutils_hack", "triton", "packaging",
})  # fmt: skip


@functools.cache
def origin_of_file(filename: str) -> Origin:
    """The origin of a code object's `co_filename`, which may be relative or a label such as `<string>`."""
    if filename.startswith("<frozen "):
        return Origin.STDLIB
    if filename.startswith("<"):
        return Origin.TORCH if filename.startswith(("<eval_with_key>", "<torch")) else Origin.USER
    if filename.startswith(_HERE):
        return Origin.USER if filename.startswith(_DEMO) else Origin.OURS
    for mark in _SITE_MARKS:
        at = filename.rfind(mark)
        if at >= 0:
            top = filename[at + len(mark) :].split(os.sep, 1)[0]
            if top in _TORCH_PACKAGES:
                return Origin.TORCH
            return Origin.STDLIB if top in _GROUND else Origin.LIBRARY
    if _torch_home() and filename.startswith(_torch_home()):
        return Origin.TORCH
    if filename.startswith(_STDLIB):
        return Origin.STDLIB
    return Origin.OURS if filename.startswith(_COMMAND) else Origin.USER


@functools.cache
def _torch_home() -> str:
    """Where torch lies when it is not in site-packages (a development build)."""
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    return os.path.join(os.path.dirname(file), "") if file else ""


def origin_of(code: types.CodeType) -> Origin:
    return origin_of_file(code.co_filename)
