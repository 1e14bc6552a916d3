"""Inputs for a Function that comes without any: made from `--shapes`, or guessed from forward's signature.

A guess is a set of small inputs, all dimensions of different sizes, that forward accepts. It is said
to be one, and a Function whose forward accepts none of them is not checked.
"""

from __future__ import annotations

import ast
import itertools
import re
import typing

import torch

from torchsleuth.checker import variants
from torchsleuth.checker.arguments import arguments_for
from torchsleuth.checker.bench import Bench
from torchsleuth.checker.randomness import random_state
from torchsleuth.checker.subject import Subject
from torchsleuth.checker.variants import Noise
from torchsleuth.errors import UsageError

TRIES = 3000
ACCEPTED = 80

SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (2, 3, 4), (4,), (3,), (2,), (4, 3), (2, 3), (4, 5), (5, 4), (2, 4, 5), (2, 3, 5), (3, 5), (2, 3, 4, 5), (5,), (),
    (2, 3, 6, 6), (3, 2, 3, 3), (1,),
)  # fmt: skip
INDEX_NAMES = re.compile(r"(^|_)(idx|ids?|index|indices|labels?|targets?|tokens?|classes|input_ids)$", re.IGNORECASE)
MASK_NAMES = re.compile(r"mask$", re.IGNORECASE)
INTEGER_NAMES = re.compile(r"^(dim|axis|n|k|num|size|groups?|stride|padding|kernel|heads?|num_heads|n_heads)$", re.IGNORECASE)
PLACE_NAMES = re.compile(r"dim|axis|group|stride|pad|kernel|size|dilat|rank|seed|step|start|end|idx|index|head", re.IGNORECASE)
FLOAT_NAMES = re.compile(r"^(eps|epsilon|p|alpha|beta|gamma|lambd|lambda_|lam|scale|slope|negative_slope|temperature|tau|t|factor|coeff|threshold|margin|min|max|min_val|max_val|lo|hi|low|high|lower|upper)$", re.IGNORECASE)  # fmt: skip


def inputs_from(texts: typing.Sequence[str], dtype: str, device: str, seed: int | None) -> tuple:
    """The inputs that `--shapes` describes."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise UsageError(f"--dtype {dtype} is not a floating-point type of torch")
    generator = torch.Generator().manual_seed(0 if seed is None else seed)
    try:
        return tuple(_input(text, kind, device, generator) for text in texts)
    except RuntimeError as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from None


def _input(text: str, dtype: torch.dtype, device: str, generator: torch.Generator) -> typing.Any:
    if text.startswith("="):
        try:
            return ast.literal_eval(text[1:])
        except (ValueError, SyntaxError):
            raise UsageError(f"--shapes {text}: what follows = must be a Python number, string, tuple, True, False or None") from None
    found = re.fullmatch(r"(\(\)|\[?\d*(?:[,x]\d+)*,?\]?)(?::(\w+)(?:<(\d+))?)?", text.replace(" ", ""))
    if not found:
        raise UsageError(f"--shapes {text}: expected a shape such as 1,32,100, a shape with a type such as 4,7:int64<50, or =VALUE")
    shape = tuple(int(n) for n in re.findall(r"\d+", found[1]))
    kind = getattr(torch, found[2], None) if found[2] else dtype
    if not isinstance(kind, torch.dtype):
        raise UsageError(f"--shapes {text}: torch has no type {found[2]}")
    if kind is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool().to(device)
    if kind in (torch.complex64, torch.complex128):
        return torch.randn(shape, generator=generator, dtype=kind).to(device)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(kind).to(device)
    return torch.randint(0, int(found[3] or 2), shape, generator=generator).to(kind).to(device)


def guessed_inputs(function: type, seed: int | None = None) -> tuple[tuple, str]:
    """Inputs that forward accepts, and a sentence about them."""
    subject = Subject(function)
    signature = subject.signature
    if signature is None:
        raise UsageError(f"{subject.name}: the inputs of forward cannot be guessed; pass --shapes")
    generator = torch.Generator().manual_seed(0 if seed is None else seed)
    parameters = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()) and not parameters:
        raise UsageError(f"{subject.name}: forward takes *args; pass --shapes")
    choices = [_candidates(p, generator) for p in parameters]
    single = [[v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in c] for c in choices]
    error: Exception | None = None
    accepted: list[tuple] = []
    state = torch.get_rng_state()
    try:
        # float32 only where forward takes nothing else: some kernels know no other type.
        several = itertools.chain(itertools.islice(_nearest_first(choices), TRIES), (None,), itertools.islice(_nearest_first(single), TRIES // 10))
        for combination in several:
            if combination is None:
                if accepted:
                    break
                continue
            try:
                with torch.no_grad():
                    run = subject.forward(tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in combination))
            except Exception as failure:
                error = failure
                continue
            if not any(isinstance(o, torch.Tensor) and o.is_floating_point() and o.numel() for o in run.outputs):
                continue
            accepted.append(combination)
            if _fits(subject, combination, generator):
                accepted.insert(0, combination)
                break
            if len(accepted) >= ACCEPTED:
                break
    finally:
        torch.set_rng_state(state)
    if accepted:
        accepted[0] = _told_apart(subject, accepted[0])
        shapes = ", ".join(
            f"{p.name} {list(v.shape) if isinstance(v, torch.Tensor) else repr(v)}" for p, v in zip(parameters, accepted[0], strict=True)
        )
        return tuple(accepted[0]), f"inputs guessed: {shapes}; pass --shapes to choose them"
    why = f" (last: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})" if error else ""
    raise UsageError(f"{subject.name}: no inputs were found that forward accepts{why}; pass --shapes {' '.join(p.name.upper() for p in parameters)}")


def _told_apart(subject: Subject, combination: tuple) -> tuple:
    """The guess with dimensions that merely happen to have one size in different ones, as far as forward and backward go along."""
    bench = Bench(subject, Noise(0))
    arguments = arguments_for(subject, combination, bench.generator, made=True)
    bench.state = random_state()
    for other in variants.told_apart(arguments, bench.generator, bench.takes):
        if len(other.values) == len(combination) and _fits(subject, other.values, bench.generator):
            return other.values
    return combination


def _fits(subject: Subject, combination: tuple, generator: torch.Generator) -> bool:
    """Whether backward takes the guess too.

    forward may accept by broadcasting what it was never meant for; of the guesses it accepts, one whose
    gradients have the right shapes is the likeliest. Only if none has is the first one used.
    """
    try:
        arguments = arguments_for(subject, combination, generator, made=True)
        evaluation = Bench(subject, Noise(0)).evaluate(arguments)
    except Exception:
        return False
    return not any(p.kind in ("raises", "shape", "none") for p in evaluation.problems)


def _candidates(parameter: typing.Any, generator: torch.Generator) -> list:
    """What an argument may be, likeliest first, by its annotation and its name."""
    note = "" if parameter.annotation is parameter.empty else parameter.annotation
    note = note if isinstance(note, str) else getattr(note, "__name__", "")
    name = parameter.name
    if note == "int" or (not note and INTEGER_NAMES.match(name)):
        # A factor or power of 1 hides what is forgotten of it, one of 2 what was written out; a dimension is likelier 1.
        return [1, 2, 0, -1] if PLACE_NAMES.search(name) else [3, 2, 1, 0, -1]
    if note == "float" or (not note and FLOAT_NAMES.match(name)):
        return [0.7, torch.randn(4, generator=generator, dtype=torch.float64)]
    if note == "bool":
        return [True, False]
    floats = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    if INDEX_NAMES.search(name):
        return [torch.randint(0, 2, s, generator=generator) for s in ((3,), (2,), (3, 4), (2, 3), (4,), (2, 3, 4))] + floats[:4]
    if MASK_NAMES.search(name):
        return [torch.randint(0, 2, s, generator=generator).bool() for s in ((3, 4), (2, 3, 4), (2, 3), (4,), (3,))] + floats[:4]
    return [*floats, 0.7, 1, torch.randint(0, 2, (3,), generator=generator), torch.randint(0, 2, (3, 4), generator=generator)]


def _nearest_first(choices: list[list]) -> typing.Iterator[tuple]:
    """All combinations, those made of early candidates first."""
    ranked = [list(enumerate(c)) for c in choices]
    if not ranked:
        return
    top = sum(len(r) - 1 for r in ranked)
    for total in range(top + 1):
        for picks in _with_sum(ranked, total):
            yield picks


def _with_sum(ranked: list[list[tuple[int, typing.Any]]], total: int) -> typing.Iterator[tuple]:
    if len(ranked) == 1:
        if total < len(ranked[0]):
            yield (ranked[0][total][1],)
        return
    for rank, value in itertools.islice(ranked[0], total + 1):
        for rest in _with_sum(ranked[1:], total - rank):
            yield (value, *rest)
