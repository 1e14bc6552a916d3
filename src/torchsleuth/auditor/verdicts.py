"""The author's contract for audit rules, and the few phrases they share. No torch."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence

from torchsleuth.auditor.observation import Move, Observation
from torchsleuth.auditor.observation_parts import Polarity, Site
from torchsleuth.model import Applicability, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import Rule

ADDING = ("add", "add_")  # what takes a mask of numbers


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
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.3g}" if abs(value) < 1000 else f"{value:.4g}"


def expression_of(site: Site) -> str:
    """The source on one line, short enough for a sentence."""
    text = " ".join(site.source.split())
    return text if len(text) <= 60 else text[:57] + "..."


def astray_mask(move: Move) -> list[Culprit]:
    """The places of a mask that does not lie along the samples of the scores."""
    if move.mask_site is None or not move.samples_axis:
        return []
    laid = move.made_site if move.made_site is not None and move.made_site.span.line != move.mask_site.span.line else None
    return [*([culprit(laid, Role.CREATE, "the mask is given its axes here")] if laid is not None else []),
            culprit(move.mask_site, Role.CREATE, f"the mask's samples lie along axis {move.samples_axis} of the scores here")]  # fmt: skip


def astray_words(move: Move) -> str:
    return (f"the mask has shape {list(move.mask_shape)} where it meets scores of shape {list(move.masked_shape)}; sizes are matched from the last axis on, so that its first axis, "
            f"the samples, lies along axis {move.samples_axis} of the scores instead of axis 0") if move.samples_axis else ""  # fmt: skip


def astray_fix(move: Move) -> Fix:
    return advice(f"Give the mask an axis for each that it lacks: `mask[:, {'None, ' * (len(move.masked_shape) - 2)}:]` for a mask of [samples, keys].")


def turned_mask(way: Polarity, taker: Site | None) -> list[Culprit]:
    """The places of a mask that hides the words: what is to be changed first."""
    called = f"`{way.name}`" if way.name else "the mask"
    apart = way.made is not None and (way.numbered is None or way.made.span.line != way.numbered.span.line)
    made = [culprit(way.made, Role.CREATE, f"{called} is made here, True at {'positions that hold data' if way.words else 'padding'}")] if way.made is not None and apart else []
    turned = [culprit(site, Role.CREATE, "True and False are exchanged here") for site in way.turned]
    if way.numbered is not None:
        turned.append(culprit(way.numbered, Role.CREATE, "the numbers that are added to the scores are made here, far below zero at positions that hold data"))
    takes = "the mask is added to the scores here: what is far below zero is hidden" if way.parameter in ADDING else \
        f"`{way.parameter}` takes the mask here, and True {'hides' if way.hides else 'keeps'} a position there"  # fmt: skip
    taken = [culprit(taker, Role.CALL if taker.library else Role.OPERAND, takes)] if taker is not None else []
    if way.made_rightly:
        return [*turned, *taken]
    return [*turned, *taken, *made] if way.named_rightly else [*made, *turned, *taken]


def turned_title(way: Polarity) -> str:
    taken = "added to the scores" if way.parameter in ADDING else f"given to `{way.parameter}`"
    return f"the mask {taken} hides the words and keeps the padding"


def turned_words(way: Polarity) -> str:
    """What a mask that is right where it is made holds there, and where that is."""
    if way.made is None or not way.made_rightly:
        return ""
    return f"`{way.name or expression_of(way.made)}` ({way.made.span.file}:{way.made.span.line}) is True at {'positions that hold data' if way.words else 'padding'}, which is right for its other uses or its name"


def turning(way: Polarity) -> Fix:
    """What to do about it."""
    if way.made is not None and not way.made_rightly and not way.named_rightly:
        return advice(f"Make `{way.name or 'the mask'}` the other way round: True at {'padding' if way.words else 'positions that hold data'}.")
    if way.numbered is not None and not way.turned:
        return advice("Make these numbers the other way round, zero at positions that hold data: `(1 - mask) * -1e9` of a mask that is 1 there.")
    if way.turned:
        return advice(f"Leave out what exchanges True and False on the way: `{expression_of(way.turned[0])}`.")
    if way.parameter in ADDING:
        return advice("Make the mask the other way round: zero at positions that hold data, `-inf` at padding.")
    return advice(f"Invert the mask where it is given: `{way.parameter}(~mask, …)`." if way.parameter.startswith("masked_fill") else f"Invert the mask where it is given: `{way.parameter}=~mask`.")
