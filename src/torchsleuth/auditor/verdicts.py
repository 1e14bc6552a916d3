"""The author's contract for audit rules, and the few phrases they share. No torch."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence

from torchsleuth.auditor.observation import Move, Observation

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.model import Applicability, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import Rule


class AuditRule(Rule):
    """A rule about what an experiment saw. `order` ranks findings of equal confidence."""

    order: typing.ClassVar[int] = 50

    def judge(self, observation: Observation) -> Iterable[Diagnosis]:
        raise NotImplementedError


def culprit(site: Site, role: Role, label: str = "", known: Known = Known.OBSERVED) -> Culprit:
    return Culprit(role, site.span, site.source, known, label, site.excerpt, site.function)


def uncalled(site: Site | None) -> list[Culprit]:
    """The place where a method is only named."""
    return [culprit(site, Role.CALL, "names the method and does not call it: the parentheses are missing", Known.INFERRED)] if site is not None else []


def observed(*texts: str) -> tuple[Fact, ...]:
    return tuple(Fact(text, Known.OBSERVED) for text in texts if text)


def recomputed(*texts: str) -> tuple[Fact, ...]:
    return tuple(Fact(text, Known.RECOMPUTED) for text in texts if text)


def advice(title: str, meaning: str = "") -> Fix:
    return Fix(title, Applicability.DISPLAY_ONLY, meaning=meaning)


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a`, `b` and 3 more."""
    shown = [f"`{name}`" for name in names[:most]]
    rest = len(names) - len(shown)
    if rest > 0:
        return ", ".join(shown) + f" and {rest} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"


def again(move: Move) -> str:
    """How a second place was found."""
    return "with the place before it put right: " if move.rank else ""


def module_words(site: Site | None) -> str:
    """Where in the model, in words: "in `encoder.0` (Layer)"."""
    if site is None:
        return ""
    if site.module:
        kind = f" ({site.module_type})" if site.module_type else ""
        return f"in module `{site.module}`{kind}"
    return f"in {site.module_type}" if site.module_type else ""


def number(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1000 else f"{value:.4g}"


def expression_of(site: Site) -> str:
    """The source on one line, short enough for a sentence."""
    text = " ".join(site.source.split())
    return text if len(text) <= 60 else text[:57] + "..."
