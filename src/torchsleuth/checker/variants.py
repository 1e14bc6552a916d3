"""Other inputs of the same kind: another batch size, other values, other signs, other constants.

A variant is made from the values the user gave (repeated, cut and jittered), so that positive inputs
stay positive and class ids stay in range. `forward` is the judge: where it refuses a variant, nothing
is held against the Function.
"""

from __future__ import annotations

import functools
import itertools
import operator
import typing

import torch

from torchsleuth.checker.arguments import Arguments

SMALL = 256  # elements: experiments on more than this many use smaller copies where they can
LARGE = 4096


def tensors(arguments: Arguments) -> list[int]:
    return [k for k, value in enumerate(arguments.values) if isinstance(value, torch.Tensor)]


def elements(arguments: Arguments) -> int:
    return max([v.numel() for v in arguments.values if isinstance(v, torch.Tensor)], default=0)


def leading(arguments: Arguments, outputs: typing.Sequence) -> tuple[int, ...]:
    """The tensors whose first dimension is the batch.

    That is the first dimension of an output that some input shares; where there is none, as for a loss, that of the first
    checked input.
    """
    heads = {k: v.shape[0] for k, v in enumerate(arguments.values) if isinstance(v, torch.Tensor) and v.ndim}
    for out in outputs:
        if isinstance(out, torch.Tensor) and out.ndim and out.shape[0] in heads.values():
            batch = out.shape[0]
            break
    else:
        batch = next((heads[k] for k in arguments.checked if k in heads), None)
    return tuple([k for k, n in heads.items() if n == batch])


def with_batch(arguments: Arguments, size: int, generator: Noise, batched: tuple[int, ...]) -> Arguments | None:
    """The first dimension of the tensors at `batched` changed to `size`."""
    if not batched:
        return None
    batch = arguments.values[batched[0]].shape[0]
    if batch == size:
        return None
    shapes = {}
    for k in batched:
        shape = list(arguments.values[k].shape)
        if batch > 1 and shape.count(batch) > 1:
            return None  # a square matrix has no batch: its dimensions are told apart elsewhere
        shape[0] = size
        shapes[k] = shape
    return resized(arguments, shapes, generator)


def with_sizes(arguments: Arguments, mapping: dict[int, int], generator: Noise) -> Arguments | None:
    """Every dimension of a size in `mapping` changed to its value there."""
    shapes = {k: [mapping.get(n, n) for n in v.shape] for k, v in enumerate(arguments.values) if isinstance(v, torch.Tensor)}
    return resized(arguments, shapes, generator)


def reshapings(arguments: Arguments, generator: Noise, outputs: typing.Sequence = ()) -> typing.Iterator[Arguments | None]:
    """For inputs or outputs with two equal dimensions: the same with those dimensions told apart."""
    square: set[int] = set()
    for v in (*arguments.values, *outputs):
        if isinstance(v, torch.Tensor) and len(set(v.shape)) < v.ndim:
            square |= {n for n in v.shape if n > 1 and list(v.shape).count(n) > 1}
    for n in sorted(square):
        for chosen in itertools.islice(_subsets(arguments, n), 120):
            yield _longer(arguments, chosen, n, generator)


def _places(arguments: Arguments, n: int) -> list[tuple[int, int]]:
    return [(k, dim) for k in tensors(arguments) for dim, size in enumerate(arguments.values[k].shape) if size == n]


def _subsets(arguments: Arguments, n: int) -> typing.Iterator[tuple[tuple[int, int], ...]]:
    """Some of the dimensions of one size, not all of them.

    Those of integer tensors and masks all change, or none does: indices of fewer rows than there are would be accepted,
    and mean something else.
    """
    places = _places(arguments, n)
    whole = {place for place in places if not arguments.values[place[0]].is_floating_point()}
    for count in range(1, min(len(places), 4)):
        for chosen in itertools.combinations(places, count):
            if whole <= set(chosen):
                yield chosen


def _longer(arguments: Arguments, chosen: typing.Iterable[tuple[int, int]], n: int, generator: Noise) -> Arguments | None:
    """The chosen dimensions in a size that no other dimension has."""
    taken = {size for k in tensors(arguments) for size in arguments.values[k].shape}
    shapes = {k: list(arguments.values[k].shape) for k in tensors(arguments)}
    for k, dim in chosen:
        shapes[k][dim] = next(size for size in itertools.count(n + 1) if size not in taken)
    return resized(arguments, shapes, generator)


def told_apart(arguments: Arguments, generator: Noise, accepted: typing.Callable[[Arguments], bool]) -> typing.Iterator[Arguments]:
    """For sizes that several dimensions have, of one tensor or of several: some of them in another size, as far as `accepted`.

    Two dimensions of one size hide which of them a formula means.
    """
    for n in sorted({n for k in tensors(arguments) for n in arguments.values[k].shape if n > 1}):
        others = (_longer(arguments, chosen, n, generator) for chosen in itertools.islice(_subsets(arguments, n), 30))
        yield from itertools.islice((other for other in others if other is not None and accepted(other)), 3)


def doubled(arguments: Arguments, generator: Noise) -> Arguments | None:
    """Every size twice as large: sizes that depend on one another may only change together."""
    shapes = {k: [2 * n if n > 1 else n for n in arguments.values[k].shape] for k in tensors(arguments)}
    return resized(arguments, shapes, generator) if elements(arguments) <= LARGE else None


def smaller(arguments: Arguments, generator: Noise) -> typing.Iterator[Arguments | None]:
    """Small copies of large inputs, the most reduced first."""
    for shapes in _smaller(tuple([v.shape if isinstance(v, torch.Tensor) else None for v in arguments.values])):
        yield resized(arguments, shapes, generator)


@functools.lru_cache(maxsize=1024)
def _smaller(shapes: tuple[torch.Size | None, ...]) -> list[dict[int, list[int]]]:
    """All sizes reduced, told apart by their order; then one size at a time, the largest first."""
    sizes = sorted({n for shape in shapes if shape is not None for n in shape if n > 1})
    short = dict(zip(sizes, map(min, sizes, itertools.count(3)), strict=True))
    mappings = [short, *({n: short[n]} for n in reversed(sizes))]
    return [{k: [m.get(n, n) for n in shape] for k, shape in enumerate(shapes) if shape is not None} for m in mappings]


def resized(arguments: Arguments, shapes: dict[int, list[int]], generator: Noise) -> Arguments | None:
    """The inputs in other shapes; None where trying them could do harm.

    On a GPU an index that is out of range for another size ends the process's CUDA context for good
    (a device-side assert), so integer inputs keep their sizes there.
    """
    if risky(arguments):
        return None
    values = list(arguments.values)
    for k, shape in shapes.items():
        value = values[k]
        old_shape = value.shape
        if old_shape == tuple(shape):
            continue
        if 0 in shape:
            values[k] = value.new_empty(shape)
            continue
        if all(map(operator.le, shape, old_shape)):
            values[k] = value.as_strided(shape, value.stride(), value.storage_offset()).contiguous()
            continue
        for dim, (old, new) in enumerate(zip(value.shape, shape, strict=True)):
            if new < old:
                value = value.narrow(dim, 0, new)
            elif new > old == 1:
                value = value.expand(*value.shape[:dim], new, *value.shape[dim + 1 :])
            elif new > old:
                repeats = torch.arange(new, device=value.device) % max(old, 1)
                value = value.index_select(dim, repeats) if old else value.new_zeros(*value.shape[:dim], new, *value.shape[dim + 1 :])
        grown = value.numel() > arguments.values[k].numel()
        values[k] = jittered(value, generator) if grown else value.contiguous()
    return arguments.with_values(values)


def risky(arguments: Arguments) -> bool:
    for v in arguments.values:
        if isinstance(v, torch.Tensor) and not v.is_cpu and not v.is_floating_point() and v.dtype is not torch.bool:
            return True
    return False


def jittered(value: torch.Tensor, generator: Noise) -> torch.Tensor:
    """The value moved a little, keeping signs, zeros, and whole numbers."""
    if not value.is_floating_point() or not value.numel() or not bool((value != value.round()).any()):
        return value.contiguous()
    return value * (1 + 0.1 * randn(value, generator))


class Noise:
    """Normal random numbers, independent of torch's global generator and the same for the same seed.

    Small tensors are cut from one pool that is made once: a draw then costs a slice, a tenth of `torch.randn`.
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.place = seed % (POOL // 2)

    @functools.cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def like(self, value: torch.Tensor, strides: typing.Callable | None = None) -> torch.Tensor:
        """Of a tensor's shape, floating-point type and device. What user code gets to see has to be a copy: it may write.

        With `strides` (of a shape) the numbers lie in memory of their own, in that order, each of them there once or more.
        """
        count, shape = value.numel(), value.shape
        if count * 4 <= POOL and value.is_cpu and value.dtype is torch.float64:
            if self.place + count > POOL:
                self.place = (self.place + 7919) % 1009
            start, self.place = self.place, self.place + count
            if strides is None:
                return _from_pool(shape, start)
            return _from_pool((count,), start).clone().as_strided(shape, strides(shape))
        # In float32 first: several times as fast as float64, and any random numbers do.
        out = torch.randn(value.shape, generator=self.generator, device="cpu").to(value.dtype if value.is_floating_point() else torch.float64)
        out = out if value.device.type == "cpu" else out.to(value.device)
        return out if strides is None else out.as_strided(value.shape, strides(value.shape))


POOL = 2**16


@functools.cache
def _pool() -> torch.Tensor:
    return torch.randn(POOL, generator=torch.Generator().manual_seed(POOL), dtype=torch.float64, device="cpu")


@functools.lru_cache(maxsize=1024)
def _from_pool(shape: tuple[int, ...], start: int) -> torch.Tensor:
    """A view of the pool: the same seed asks for the same ones, and making a view takes as long as reading it."""
    return _pool().as_strided(shape, _dense(shape), start)


@functools.lru_cache(maxsize=4096)
def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


@functools.lru_cache(maxsize=4096)
def repeated_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first long dimension a repeat of one slice (stride 0), the others in reverse order."""
    first = next((dim for dim, n in enumerate(shape) if n > 1), None)
    out, step = [], 1
    for dim, n in enumerate(shape):
        out.append(0 if dim == first else step)
        step *= 1 if dim == first else max(n, 1)
    return tuple(out)


@functools.lru_cache(maxsize=4096)
def reversed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Memory in reverse order of the dimensions."""
    return _dense(shape[::-1])[::-1]


def randn(value: torch.Tensor, noise: Noise) -> torch.Tensor:
    return noise.like(value)


# -- values ------------------------------------------------------------------------------------


def redrawn(arguments: Arguments, generator: Noise) -> Arguments:
    """Other values of the same size and, in general, of both signs for the checked inputs."""
    values = list(arguments.values)
    settings = signed_settings(arguments)
    for k in arguments.checked:
        value = values[k]
        size = float(value.abs().mean()) if value.numel() else 1.0
        drawn = generator.like(value) * (size if 1e-3 < size < 1e3 else 1.0)
        values[k] = drawn.abs() * value.sign() if k in settings else drawn
    return arguments.with_values(values)


def signed_settings(arguments: Arguments) -> frozenset[int]:
    """Inputs of one sign that hold one number, or one per row or column, beside a larger one: limits, widths, slopes, temperatures.

    Their sign is a part of what they are: a clamp between `-limit` and `limit` is not meant for a negative one.
    """
    largest = max((arguments.values[k].numel() for k in arguments.checked), default=0)
    found = set()
    for k in arguments.checked:
        value = arguments.values[k]
        if 0 < value.numel() < largest and value.numel() == max(value.shape, default=1):
            low, high = torch.aminmax(value)
            found |= {k} if low.item() > 0 or high.item() < 0 else set()
    return frozenset(found)


def moved(arguments: Arguments, generator: Noise) -> Arguments:
    """Other values of the same signs."""
    values = [v * torch.exp(0.4 * generator.like(v)) if k in arguments.checked else v for k, v in enumerate(arguments.values)]
    return arguments.with_values(values)


def grown(arguments: Arguments, generator: Noise) -> Arguments | None:
    """Inputs of a few elements with more of them: a law found on one number is none."""
    if risky(arguments):
        return None
    taken = {n for k in tensors(arguments) for n in arguments.values[k].shape}
    mapping: dict[int, int] = {}
    for n in sorted(taken):
        # Sizes stay different from one another: equal ones hide which of them is meant.
        if n < 4:
            mapping[n] = next(m for m in range(4, 20) if m not in taken and m not in mapping.values())
    shapes = {k: [mapping.get(n, n) for n in arguments.values[k].shape] for k in tensors(arguments)}
    if not any(shapes.values()):
        flat = [v.reshape(1).repeat(8) if isinstance(v, torch.Tensor) else v for v in arguments.values]
        return arguments.with_values(flat)
    return resized(arguments, shapes, generator)


def few(arguments: Arguments) -> bool:
    """Whether an input has too few different elements to tell one law from another."""
    return any(
        arguments.values[k].numel() < 4 or not bool((arguments.values[k] != arguments.values[k].reshape(-1)[0]).any())
        for k in arguments.checked
    )


def other_signs(arguments: Arguments, generator: Noise) -> Arguments | None:
    """Inputs of one sign only, with half of their elements negated."""
    values, changed = list(arguments.values), False
    settings = signed_settings(arguments)
    for k in arguments.checked:
        value = values[k]
        if not value.numel() or k in settings:
            continue
        low, high = torch.aminmax(value)
        if low.item() >= 0 or high.item() <= 0:
            signs = torch.randint(0, 2, value.shape, generator=generator.generator, device="cpu").to(value) * 2 - 1
            values[k], changed = value * signs, True
    return arguments.with_values(values) if changed else None


def wider(arguments: Arguments) -> Arguments | None:
    """Values five times as large: the other side of a threshold."""
    values = [v * 5 if k in arguments.checked else v for k, v in enumerate(arguments.values)]
    return arguments.with_values(values)


def narrower(arguments: Arguments) -> Arguments:
    """Values a fifth as large: inside of a margin."""
    return arguments.with_values([v / 5 if k in arguments.checked else v for k, v in enumerate(arguments.values)])


def other_masks(arguments: Arguments, generator: Noise) -> Arguments | None:
    values, changed = list(arguments.values), False
    for k in tensors(arguments):
        if values[k].dtype is torch.bool and values[k].numel() > 1:
            drawn = torch.randint(0, 2, values[k].shape, generator=generator.generator, device="cpu").bool()
            drawn.view(-1)[:2] = torch.tensor((True, False), device="cpu")  # a few elements may all come out alike
            values[k], changed = drawn.to(values[k].device), True
    return arguments.with_values(values) if changed else None


def other_indices(arguments: Arguments) -> typing.Iterator[Arguments]:
    """Whole numbers in tensors mirrored in their range, all of them: what was picked twice is picked once, and the reverse.

    Negative ones (a label that is to be ignored) stay. On a GPU an index out of range would end the CUDA context.
    """
    values, changed = list(arguments.values), False
    for k in tensors(arguments):
        value = values[k]
        if value.dtype in (torch.int64, torch.int32) and value.numel() > 1 and not risky(arguments):
            used = value[value >= 0]
            if used.numel() and bool((used != used[0]).any()):
                values[k], changed = torch.where(value >= 0, used.max() + used.min() - value, value), True
    if changed:
        yield arguments.with_values(values)
