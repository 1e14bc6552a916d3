"""Which way round a mask is that hides the words: where it was made, what it holds there, and for what the one who takes it takes True."""

from __future__ import annotations

import ast
import os
import re
import typing

import torch

from torchsleuth.auditor.inputs.batch import HIDES
from torchsleuth.auditor.observation_parts import Polarity, Site
from torchsleuth.auditor.tracing.beginnings import given_by, maker, way_back
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.sites import call_at, expression, library_name, syntax_of
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace
from torchsleuth.model import Span
from torchsleuth.origin import Origin

_INVERTING = {"__invert__", "bitwise_not", "logical_not", "rsub", "__rsub__"}
_MULTIPLYING = {"mul", "__mul__", "__rmul__", "mul_"}
_EQUAL, _UNEQUAL, _ABOVE, _BELOW = {"eq", "__eq__"}, {"ne", "__ne__"}, {"gt", "__gt__"}, {"lt", "__lt__"}
_PASSING = ARRANGING | {"bool", "int", "long", "detach", "repeat", "repeat_interleave", "byte"}
_OF_PADDING = re.compile("pad|hid|ignor|blank|invalid|empty")
_OF_WORDS = re.compile("valid|keep|kept|real|attention|non_?pad|not_?pad|words|visible|present|observed")
MOST_STEPS = 40


def polarity(trace: Trace, taker: Op, mask: int, flags: typing.Container[int], name: str) -> Polarity:
    """Of a mask (by its key) that an operation takes and that hides the words there. `flags`: keys of masks among the inputs; `name`: what such an input is called."""
    handed = _handed(trace, mask, taker)
    key: int | None = mask if handed is None else handed
    turns: list[Op] = []
    made: Op | None = None
    numbered: Op | None = None
    for _ in range(MOST_STEPS):
        made = maker(trace, key)
        if made is None:
            break
        before = next((seen for seen in made.ins if seen.dtype is torch.bool), None)
        if numbered is None and not _within(made, taker) and _numbers(made):
            numbered = made
        if made.name.startswith("masked_fill") and before is not None:
            key = before.key  # numbers made of flags, to be added to the scores: torch's own do so, too
            continue
        turned = _turned(trace, made, flags)
        if turned is None:
            written = maker(trace, made.ins[0].key) if made.name == "__setitem__" and made.ins else None
            if written is not None and written.name in _EQUAL | _UNEQUAL | _ABOVE | _BELOW | {"ge", "le", "__ge__", "__le__"}:
                key = made.ins[0].key  # a few of its flags were written one by one
                continue
            break
        turns += [made] if turned else []
        key = made.ins[0].key
    parameter, hides = _parameter(taker) if handed is None else ("attention_mask", False)
    holds_words = hides != bool(len(turns) % 2)
    site = trace.site(made) if made is not None and made.place.user_code is not None and not _within(made, taker) else None
    if made is None and trace.beforehand is not None and (given := given_by(trace, list(way_back(trace, key)), key)) is not None:
        site = trace.beforehand.made(given)
    called = _called(site) if site is not None else ""
    apart = [one for op in turns if not _within(op, taker) and (one := trace.site(op)) is not None and (site is None or one.span.line != site.span.line)]
    said = f"{name} {called}".lower()
    named_so = bool((_OF_WORDS if holds_words else _OF_PADDING).search(said)) and not (_OF_PADDING if holds_words else _OF_WORDS).search(said)
    right = made is not None and (_used_rightly(trace, made, holds_words, taker) or (holds_words and "attention_mask" in said))
    numbers = trace.site(numbered) if numbered is not None else None
    return Polarity(parameter, hides, called or name, site, holds_words, tuple(dict.fromkeys(apart)), numbers, named_so, right)


def _numbers(op: Op) -> bool:
    """Does this make numbers of flags that hide where they are added?"""
    number = op.argument(2 if op.name.startswith("masked_fill") else 1, "value" if op.name.startswith("masked_fill") else "other")
    return (op.name in _MULTIPLYING or op.name.startswith("masked_fill")) and isinstance(number, (int, float)) and number < -HIDES


def _handed(trace: Trace, mask: int, taker: Op) -> int | None:
    """Of a mask that `transformers` makes of the one it is given: that one, by its key."""
    here = (taker.place.user_code, taker.place.user_offset)
    if here[0] is None or origin_of_place(taker) is not Origin.LIBRARY or library_name(taker.place.code.co_filename) != "transformers":
        return None

    def outside(op: Op) -> bool:
        return (op.place.user_code, op.place.user_offset) != here

    keys = trace.ancestors({mask}, without=outside)
    given = [key for key in keys if (index := trace.producer.get(key)) is None or outside(trace.ops[index])]
    return given[0] if len(given) == 1 else None


def _turned(trace: Trace, op: Op, flags: typing.Container[int]) -> bool | None:
    """Does this exchange what flags hold? None where it does not take flags, but makes them."""
    if not op.ins:
        return None
    if op.name in _MULTIPLYING and len(op.ins) == 1:
        return False
    if op.name == "where" and len(op.ins) == 1:
        yes, no = op.argument(1, "input"), op.argument(2, "other")
        return yes > no if isinstance(yes, (int, float)) and isinstance(no, (int, float)) else None
    if not _are_flags(trace, op.ins[0].key, flags):
        return None
    if op.name in _INVERTING:
        return True
    number = op.argument(1, "other")
    if len(op.ins) > 1 or not isinstance(number, (bool, int, float)):
        return None
    if op.name in _EQUAL | _UNEQUAL and number in (0, 1):
        return (op.name in _EQUAL) == (number == 0)
    return op.name in _BELOW if op.name in _ABOVE | _BELOW and 0 <= number <= 1 else None


def _are_flags(trace: Trace, key: int, flags: typing.Container[int]) -> bool:
    """Flags, or numbers that were made of flags; a mask among the inputs may be such numbers from the beginning."""
    if key in flags:
        return True
    for op in way_back(trace, key):
        # (Ids that were filled where a mask says so have it as another operand; they are no flags.)
        if any(seen.dtype is torch.bool for seen in (*op.outs, *op.ins[:1])) or any(seen.key in flags for seen in op.ins):
            return True
    return False


def _parameter(taker: Op) -> tuple[str, bool]:
    """What the mask is called by the one who takes it, and whether True hides there."""
    if taker.name == "scaled_dot_product_attention":
        return "attn_mask", False
    if taker.name != "multi_head_attention_forward":
        return taker.name, True
    call = call_at(taker.place)
    names = [k.arg for k in call.keywords if k.arg is not None and k.arg.endswith("key_padding_mask")] if call is not None else []
    across = taker.module.endswith("multihead_attn")
    fitting = [name for name in names if name.startswith("memory") == across] if len(names) > 1 else names
    return fitting[0] if len(fitting) == 1 else "key_padding_mask", True


def _within(op: Op, taker: Op) -> bool:
    """Is it done by the very call that takes the mask, or written in its arguments?"""
    if op.place.user_code is not taker.place.user_code:
        return False
    if op.place.user_offset == taker.place.user_offset:
        return True
    inside, call = _span(op), _span(taker)
    return inside is not None and call is not None and (call.line, call.column) <= (inside.line, inside.column) and (inside.end_line, inside.end_column) <= (call.end_line, call.end_column)


def _span(op: Op) -> Span | None:
    return expression(op.place.user_code, op.place.user_offset)[0] if op.place.user_code is not None else None


def _called(site: Site) -> str:
    """The name that what is made here is given: of the variable, or of the function that returns it."""
    tree = syntax_of(os.path.abspath(site.span.file))
    name = ""
    for node in ast.walk(tree) if tree is not None else ():  # outside in
        if not getattr(node, "lineno", 0) or not (node.lineno <= site.span.line and site.span.end_line <= (node.end_lineno or 0)):  # type: ignore[attr-defined]
            continue
        if isinstance(node, ast.FunctionDef):
            name = f"{node.name}(…)"
        elif isinstance(node, ast.Return) and isinstance(node.value, (ast.Tuple, ast.Dict)):
            name = ""  # it is one of several things that the function gives
        elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Tuple):
            target = node.targets[0]
            while isinstance(target, ast.Subscript):
                target = target.value
            name = ast.unparse(target)
    return name


def _used_rightly(trace: Trace, made: Op, words: bool, taker: Op) -> bool:
    """Is the same mask used elsewhere, and always the right way round? Then it is right, and it is the taker who is given it wrongly."""
    holds = {seen.key: words for seen in made.outs}
    found: list[bool] = []
    for op in trace.ops[made.index + 1 :]:
        mine = [seen for seen in op.ins if seen.key in holds]
        if not mine or op is taker:
            continue
        first = holds[mine[0].key]
        if len(op.ins) == 1 and (op.name in _PASSING or op.name in _INVERTING):
            holds.update((seen.key, first != (op.name in _INVERTING)) for seen in op.outs)
        elif len(op.ins) == 1 and op.name in _EQUAL | _UNEQUAL and op.argument(1, "other") in (0, 1):
            holds.update((seen.key, first != ((op.name in _EQUAL) == (op.argument(1, "other") == 0))) for seen in op.outs)
        elif op.name == "sum" or (op.name in _MULTIPLYING and len(op.ins) > 1) or (op.name == "__getitem__" and op.ins[0] is not mine[0]):
            found.append(first)
    return bool(found) and all(found)
