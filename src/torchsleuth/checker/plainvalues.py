"""Other plain values among the inputs, one at a time: constants, flags, whole numbers."""

from __future__ import annotations

import typing

from torchsleuth.checker.arguments import Arguments


def other_constants(arguments: Arguments) -> typing.Iterator[tuple[str, Arguments]]:
    """One float argument at a time changed."""
    for k, value in enumerate(arguments.values):
        if isinstance(value, float) and value == value and abs(value) < 1e6:
            changed = value * 0.7 + 0.05
            yield f"{arguments.names[k]}={changed:g}", arguments.with_values(
                [changed if j == k else v for j, v in enumerate(arguments.values)]
            )


def larger_constants(arguments: Arguments) -> typing.Iterator[Arguments]:
    """One float argument at a time larger, a share still a share: the other side of a threshold than `other_constants` reach."""
    for k, value in enumerate(arguments.values):
        if isinstance(value, float) and 0 < value < 1e6:
            changed = value * 1.5 if value >= 1 else value**0.6
            yield arguments.with_values([changed if j == k else v for j, v in enumerate(arguments.values)])


def other_flags(arguments: Arguments) -> typing.Iterator[tuple[str, Arguments]]:
    """One flag at a time the other way."""
    for k, value in enumerate(arguments.values):
        if isinstance(value, bool):
            yield f"{arguments.names[k]}={not value}", arguments.with_values([not value if j == k else v for j, v in enumerate(arguments.values)])


def other_integers(arguments: Arguments) -> typing.Iterator[Arguments]:
    """One integer argument at a time one larger or, where it is above 1, one smaller."""
    for k, value in enumerate(arguments.values):
        if isinstance(value, int) and not isinstance(value, bool):
            for changed in (value + 1, value - 1) if value > 1 else (value + 1,):
                yield arguments.with_values([changed if j == k else v for j, v in enumerate(arguments.values)])
