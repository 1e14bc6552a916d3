"""What all parts of an observation are made of: places in the source, and tensors in a few words."""

from __future__ import annotations

from dataclasses import dataclass

from torchsleuth.model import Excerpt, Span


@dataclass(frozen=True, slots=True)
class Site:
    """A source expression, and the module that was running when it was evaluated."""

    span: Span
    source: str
    function: str = ""
    excerpt: Excerpt | None = None
    module: str = ""  # path below the audited model, "" for the model itself or outside of it
    module_type: str = ""
    library: str = ""  # the library whose code really did it, where the span is the program's call into it


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor in a few words."""

    size: tuple[int, ...]
    dtype: str
    name: str = ""  # the input's or parameter's name, or its source expression


@dataclass(frozen=True, slots=True)
class Made:
    """Where an operand of this size got its axis of size 1, or lost one."""

    site: Site
    operation: str
    size: tuple[int, ...]
    gained: bool
