"""Columns of padding that an experiment has added: taken out of results again, so that they can be compared with those without."""

from __future__ import annotations

import torch

MOST_PLACES = 16  # tried for columns that lie beside other positions


class Added:
    """So many more positions at the end of sequences of this length. Called with a result for the longer and one for the
    original sequences, it gives the first at the size of the second; None where their sizes differ otherwise."""

    def __init__(self, length: int, more: int) -> None:
        self.length, self.more = length, more

    def __call__(self, longer: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
        if longer.shape == like.shape:
            return longer
        kept = self._kept(longer, like)
        return None if kept is None else longer[_crossed(kept, longer.device)]

    def filled(self, longer: torch.Tensor, like: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
        """The longer result with these values, of the size of the other, everywhere but in the new columns."""
        kept = self._kept(longer, like)
        if kept is None:
            return None
        whole = longer.clone()
        whole[_crossed(kept, longer.device)] = values
        return whole

    def _kept(self, longer: torch.Tensor, like: torch.Tensor) -> list[torch.Tensor] | None:
        """Along each axis, the places that were there before.

        Positions may stand beside others (a class token before them, those of an image after them): of the places where the
        new ones may lie, the one that leaves the least difference.
        """
        if longer.dim() != like.dim():
            return None
        grown = [axis for axis, (size, wanted) in enumerate(zip(longer.shape, like.shape, strict=True)) if size != wanted]
        every = {axis: self._every(longer.shape[axis], like.shape[axis]) for axis in grown}
        if None in every.values():
            return None
        if set(every.values()) - {1}:  # one step for every few positions: the new ones come last
            return [torch.arange(size, device="cpu") for size in like.shape]
        beside = max(0, min((like.shape[axis] - self.length for axis in grown), default=0))
        ways = [self._without(longer, grown, first) for first in (range(beside + 1) if beside <= MOST_PLACES else (0, beside))]
        if len(ways) == 1:
            return ways[0]
        return min(ways, key=lambda kept: int((longer[_crossed(kept, longer.device)] != like).sum()))

    def _every(self, longer: int, size: int) -> int | None:
        """How many positions each step of an axis that has grown stands for; None where it has not grown as positions do."""
        if longer - size == self.more:
            return 1 if size >= self.length - 2 else None
        every = round(self.length / size) if size else 0
        return every if every > 1 and (longer - size) * every == self.more and abs(size * every - self.length) <= 2 * every else None

    def _without(self, longer: torch.Tensor, grown: list[int], first: int) -> list[torch.Tensor]:
        kept = [torch.arange(size, device="cpu") for size in longer.shape]
        for axis in grown:
            end = min(first + self.length, longer.shape[axis] - self.more)
            kept[axis] = torch.cat([kept[axis][:end], kept[axis][end + self.more :]])
        return kept


def _crossed(kept: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
    """An index that picks these places along every axis."""
    return tuple(one.to(device).reshape([-1 if axis == own else 1 for axis in range(len(kept))]) for own, one in enumerate(kept))
