"""What all parts of an observation are made of: places in the source, and tensors in a few words."""

from __future__ import annotations

from torchsleuth.frozen import frozen
from torchsleuth.model import Excerpt, Span


@frozen
class Site:
    """A source expression, and the module that was running when it was evaluated."""

    span: Span
    source: str
    function: str = ""
    excerpt: Excerpt | None = None
    module: str = ""  # path below the audited model, "" for the model itself or outside of it
    module_type: str = ""
    library: str = ""  # the library whose code really did it, where the span is the program's call into it


@frozen
class Shape:
    """A tensor in a few words."""

    size: tuple[int, ...]
    dtype: str
    name: str = ""  # the input's or parameter's name, or its source expression


@frozen
class Made:
    """Where an operand of this size got its axis of size 1, or lost one."""

    site: Site
    operation: str
    size: tuple[int, ...]
    gained: bool


@frozen
class Polarity:
    """A mask that hides the words: who takes it, and where it was made."""

    parameter: str  # what it is called by the one who takes it
    hides: bool  # there True hides
    name: str = ""  # what it is called where it is made
    made: Site | None = None
    words: bool = False  # there it is True at words
    turned: tuple[Site, ...] = ()  # where True and False are exchanged on the way
    numbered: Site | None = None  # where numbers that are added to the scores are made of it
    named_rightly: bool = False  # it is called what it is
    made_rightly: bool = False  # it is used the right way round elsewhere, or is what all the world calls so


@frozen
class Magnitude:
    """Something that makes the scores of an untrained model large."""

    kind: str  # "input", "weight", "tied" (with an embedding), "factor"
    text: str  # with its numbers
    site: Site | None  # where it was made or given its values
    used: Site | None = None  # where it is used, if that was not seen
