"""Combinations of candidate inputs that forward accepts, those made of early candidates first.

A forward that refuses its inputs has looked at some of them only. No combination that has those in common with it fares
better, so none is tried again: with five tensors that leaves hundreds of calls out of millions of combinations.
"""

from __future__ import annotations

import itertools
import typing
import warnings

import torch
from torch.overrides import TorchFunctionMode

from torchsleuth.checker.subject import Run, Subject

TRIES = 1500  # calls of forward
LOOKED_AT = 150_000  # combinations, most of them known to be refused


class Accepted(typing.NamedTuple):
    """One value per input, and what forward made of them."""

    values: tuple
    run: Run


class Search:
    """Tries candidates, one list per input; `error` is what the last refused combination raised."""

    def __init__(self, subject: Subject, candidates: list[list]):
        self.subject = subject
        self.candidates = candidates
        self.error: Exception | None = None
        self.refused: dict[tuple[int, ...], set[tuple[int, ...]]] = {}  # by the inputs looked at: positions in their lists

    def accepted(self, tries: int = TRIES) -> typing.Iterator[Accepted]:
        for picks in itertools.islice(_nearest_first([len(c) for c in self.candidates]), LOOKED_AT):
            if any(tuple([picks[k] for k in looked]) in known for looked, known in self.refused.items()):
                continue
            if tries <= 0:
                return
            tries -= 1
            values = tuple([values[pick] for values, pick in zip(self.candidates, picks, strict=True)])
            try:
                run = self._forward(values)
            except Exception as error:
                self.error = error
                looked = self._looked_at(values)
                self.refused.setdefault(looked, set()).add(tuple([picks[k] for k in looked]))
                continue
            yield Accepted(values, run)

    def _forward(self, values: tuple) -> Run:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about inputs that nobody means
            return self.subject.forward(tuple([v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]))

    def _looked_at(self, values: tuple) -> tuple[int, ...]:
        """The inputs that forward looked at before it refused. Of plain values that cannot be seen: all of them count."""
        copies = {k: v.detach().clone() for k, v in enumerate(values) if isinstance(v, torch.Tensor)}
        watch = _Looks({id(copy): k for k, copy in copies.items()})
        try:
            with torch.no_grad(), warnings.catch_warnings(), watch:
                warnings.simplefilter("ignore")
                # `needs` given, so that nobody but forward asks the inputs anything.
                self.subject.forward(tuple([copies.get(k, v) for k, v in enumerate(values)]), (True,) * len(values))
        except Exception:
            pass
        return tuple([k for k in range(len(values)) if k in watch.seen or k not in copies])


class _Looks(TorchFunctionMode):
    """Which of some tensors operations (and questions about shapes) were given."""

    def __init__(self, positions: dict[int, int]):
        super().__init__()
        self.positions = positions
        self.seen: set[int] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        pending = [*args, *(kwargs or {}).values()]
        while pending:
            value = pending.pop()
            if isinstance(value, (list, tuple)):
                pending += value
            elif id(value) in self.positions:
                self.seen.add(self.positions[id(value)])
        return func(*args, **(kwargs or {}))


def _nearest_first(counts: list[int]) -> typing.Iterator[tuple[int, ...]]:
    """All combinations of positions, those of early ones first."""
    for total in range(sum(counts) - len(counts) + 1) if counts else ():
        yield from _with_sum(counts, total)


def _with_sum(counts: list[int], total: int) -> typing.Iterator[tuple[int, ...]]:
    if len(counts) == 1:
        if total < counts[0]:
            yield (total,)
        return
    for pick in range(min(counts[0], total + 1)):
        for rest in _with_sum(counts[1:], total - pick):
            yield (pick, *rest)
