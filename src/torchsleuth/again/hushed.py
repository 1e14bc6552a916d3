"""`hushed`: code of the program's that is run again says nothing. What it prints, warns of and logs was heard the first time."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    with unlogged(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Log records are held back where they are made: handlers know the streams by other names, and write to files.

    `logging.disable` goes through every logger there is, so a series of runs has this around it once.
    """
    below = logging.root.manager.disable
    if below >= sys.maxsize:
        yield
        return
    logging.disable(sys.maxsize)
    try:
        yield
    finally:
        logging.disable(below)
