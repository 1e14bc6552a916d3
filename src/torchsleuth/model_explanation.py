"""What `explain` answers, as plain data: sections of paragraphs and programs, lists of rules. Standard library only."""

from __future__ import annotations

from torchsleuth.frozen import frozen


@frozen
class Text:
    """A paragraph; with `number`, an item of a numbered list; with `claim`, something said and not true."""

    text: str
    number: int = 0
    claim: bool = False


@frozen
class Code:
    source: str


Block = Text | Code


@frozen
class Section:
    heading: str
    blocks: tuple[Block, ...]


@frozen
class Entry:
    name: str
    summary: str


@frozen
class Explanation:
    """What `explain` answers. `str()` of it is plain text for a terminal."""

    answered: bool
    title: str
    rule: str = ""  # the rule whose page this is, or to which the message belongs
    sections: tuple[Section, ...] = ()
    entries: tuple[tuple[str, tuple[Entry, ...]], ...] = ()  # lists of rules, each under a heading
    notes: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        return tuple(block.source for section in self.sections for block in section.blocks if isinstance(block, Code))

    def __str__(self) -> str:
        from torchsleuth.render.explanation import plain

        return plain(self)
