"""Inputs for a Function that comes without any: as its own file calls it, or guessed from its source.

A guess is a set of small inputs, all dimensions of different sizes, that forward accepts; backward, and what the source says of each
input (`reading`, `usage`), choose among several. It is said to be one, and a Function whose forward accepts none of them is not checked.
"""

from __future__ import annotations

import inspect
import re
import typing

import torch

from torchsleuth.checker import variants
from torchsleuth.checker.arguments import arguments_for
from torchsleuth.checker.bench import Bench, is_float
from torchsleuth.checker.mechanics import methods
from torchsleuth.checker.randomness import random_state
from torchsleuth.checker.reading import Reading, along, readings, returned_count, trained_by_name
from torchsleuth.checker.search import Search
from torchsleuth.checker.subject import Subject
from torchsleuth.checker.usage import Call, Unknown, calls_of
from torchsleuth.checker.variants import Noise
from torchsleuth.errors import UsageError

ACCEPTED = 200

SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (2, 3, 4), (4,), (3,), (2,), (4, 3), (2, 3), (), (4, 5), (5, 4), (2, 4, 5), (2, 3, 5), (3, 5), (2, 3, 4, 5), (5,), (2, 4), (4, 2),
    (5, 3), (2, 5), (5, 2), (2, 3, 6, 6), (3, 2, 3, 3), (1,), (3, 2), (3, 8), (4, 4), (2, 3, 8), (2, 3, 4, 5, 6), (2, 3, 12),
)  # fmt: skip
INDEX_NAMES = re.compile(r"(^|_)(idx|ids?|index|indices|labels?|targets?|tokens?|classes|input_ids)$", re.IGNORECASE)
FROZEN = re.compile(r"frozen|freez|non-?trainable|not (be )?(trained|learned)", re.IGNORECASE)  # what a class says of its weights
MASK_NAMES = re.compile(r"mask$", re.IGNORECASE)
INTEGER_NAMES = re.compile(r"^(dim|axis|n|k|num|size|groups?|stride|padding|kernel|heads?|num_heads|n_heads)$", re.IGNORECASE)
PLACE_NAMES = re.compile(r"dim|axis|group|stride|pad|kernel|size|dilat|rank|seed|step|start|end|idx|index|head", re.IGNORECASE)
MANY_NAMES = re.compile(r"head|group", re.IGNORECASE)
DIM_NAMES = re.compile(r"^(dim|axis)$", re.IGNORECASE)
# Whole numbers, one below and one above zero.
QUANTISER_BOUNDS = re.compile(r"^(?:q_?|quant_?)(min|max|n|p)$", re.IGNORECASE)
# The two ends of a range: equal ones leave nothing between them.
BELOW = re.compile(r"^(lo|low|lower|min|min_?val|min_?value|clip_?min|a_?min|lower_?bound|lb)$", re.IGNORECASE)
ABOVE = re.compile(r"^(hi|high|upper|max|max_?val|max_?value|clip_?max|a_?max|upper_?bound|ub)$", re.IGNORECASE)
PLAIN = ("int", "float", "bool", "str")
FLOAT_NAMES = re.compile(r"^(eps|epsilon|p|alpha|beta|gamma|lambd|lambda_|lam|scale|slope|negative_slope|temperature|tau|t|factor|coeff|threshold|margin)$", re.IGNORECASE)  # fmt: skip

# Learned numbers that are positive by nature, one for all or one per column: a clamp between -limit and limit knows no negative one.
SETTING_NAMES = re.compile(
    r"^(alphas?|slopes?|negative_slope|limits?|caps?|bounds?|clip(_?val(ue)?)?|thresh(old)?s?|thr|tau|temp(erature)?|sigmas?|stds?|var(iance)?|scales?|step(_?size)?|"
    r"deltas?|lam(bda?)?_?|widths?|radius|margin|kappa|bandwidth|decay|eps(ilon)?)$", re.IGNORECASE,
)  # fmt: skip


VARIANCE_NAMES = re.compile(r"(^|_)(var(iance)?|std)$", re.IGNORECASE)
MODE_NAMES = re.compile(r"^(is_)?train(ing)?$|^eval(uation)?$", re.IGNORECASE)
# Mistakes of backward whatever the shapes are, and how little they speak against a guess.
BUGS = (NameError, AttributeError, IndexError)
SELF_EVIDENT = 4


class Guess(typing.NamedTuple):
    """Inputs, and a sentence about them."""

    inputs: tuple
    how: str


def guessed_inputs(function: type, seed: int | None = None) -> Guess:
    """Inputs that forward accepts, and a sentence about them."""
    subject = Subject(function)
    if subject.signature is None:
        raise UsageError(f"{subject.name}: the inputs of forward cannot be guessed; pass --shapes")
    calls = calls_of(function, seed or 0)
    state = torch.get_rng_state()
    try:
        for call in calls:
            values = _returned_too(subject, call.values)
            if call.complete and _runs(subject, values):
                return Guess(values, f"checked on inputs as line {call.line} has them; pass --shapes to choose others")
        return _chosen(subject, _Choices(subject, calls, seed or 0))
    finally:
        torch.set_rng_state(state)


def _returned_too(subject: Subject, values: tuple) -> tuple:
    """The inputs of a call, with a gradient for each that backward has one for: an example that asks for fewer does not make the others constants."""
    if not any(is_float(v) and v.requires_grad for v in values):
        return values
    names = [p.name for p in subject.signature.parameters.values()][: len(values)]
    read = readings(names, *methods(Bench(subject, Noise(0))))
    return tuple(_as_trained(v, True) if k < len(names) and is_float(v) and not read[names[k]].constant else v for k, v in enumerate(values))


def _runs(subject: Subject, values: tuple) -> bool:
    """Whether inputs that were read from a call are whole: forward takes them, and a gradient can be asked for."""
    try:
        arguments = arguments_for(subject, values, Noise(0), made=True)
        return any(is_float(o) and o.numel() for o in Bench(subject, Noise(0)).forward(arguments).outputs)
    except Exception:
        return False


class _Choices:
    """What each input may be, likeliest first."""

    def __init__(self, subject: Subject, calls: list[Call], seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        positional = [p for p in subject.signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        forward, backward, setup = methods(Bench(subject, Noise(0)))
        names = [p.name for p in positional]
        self.read = readings(names, forward, backward, setup)
        self.frozen = FROZEN.search(_text(subject.function)) is not None
        self.wide = along(forward, names)
        if any(p.kind is p.VAR_POSITIONAL for p in subject.signature.parameters.values()) and not positional:
            raise UsageError(f"{subject.name}: forward takes *args; pass --shapes")
        loose = [n for n, r in self.read.items() if r.constant and r.saved and not r.used and forward is not None]
        if loose:
            # What only backward looks at belongs to the other inputs in a way that no guess meets: the inverse of a permutation, say.
            raise UsageError(f"{subject.name}: forward only keeps {', '.join(loose)} for backward, so how it belongs to the other inputs is not known; pass inputs")
        symmetric = [n for n, r in self.read.items() if r.symmetric]
        if symmetric:
            # And perhaps positive, or with gaps between its eigenvalues: random numbers are not, and nothing they show counts.
            raise UsageError(f"{subject.name}: forward expects a symmetric matrix for {', '.join(symmetric)}, and no more is known of it; pass inputs")
        # `apply` needs as many gradients as it got arguments: those with a default are passed where backward has a place for them,
        # or where the file passes them.
        count = max([returned_count(backward) if backward is not None else 0, *(len(c.values) for c in calls)])
        least = sum(p.default is p.empty for p in positional)
        self.parameters = positional if subject.separate or count >= len(positional) else positional[: max(least, min(count, len(positional)))]
        self.seen = {p.name: [c.values[k] for c in calls if len(c.values) > k] for k, p in enumerate(self.parameters)}
        for name, values in self.seen.items():
            ranks = {v.rank if isinstance(v, Unknown) else v.ndim for v in values if isinstance(v, (Unknown, torch.Tensor))} - {-1}
            if len(ranks) == 1 and self.read[name].rank < 0:
                self.read[name].rank = ranks.pop()
            if any(isinstance(v, torch.Tensor) or isinstance(v, Unknown) and v.tensor for v in values):
                self.read[name].tensor = True
        self.sizes = sorted({n for values in self.seen.values() for v in values if isinstance(v, torch.Tensor) for n in v.shape if 1 < n < 10})
        self.candidates = [self._of(p) for p in self.parameters]

    def turned(self) -> list[list]:
        """The candidates where backward has a gradient for what is none of its business, or None for what is: a return in the wrong order."""
        found = []
        for parameter, usual in zip(self.parameters, self.candidates, strict=True):
            reading = self.read[parameter.name]
            plain, given = reading.plain, not reading.constant
            reading.constant = given
            others = [] if plain else self._of(parameter)
            found.append([*usual[:2], *others, *usual[2:]] if given else others or usual)
        return found

    def _of(self, parameter: inspect.Parameter) -> list:
        # A factor of 1 or 0 hides what is forgotten of it.
        seen = [0.7 if isinstance(v, float) and v in (0.0, 1.0) else v for v in self.seen[parameter.name] if not isinstance(v, Unknown)]
        reading = self.read[parameter.name]
        if seen and len(seen) == len(self.seen[parameter.name]) and not any(isinstance(v, torch.Tensor) or v is None for v in seen):
            out = seen  # a plain value wherever the file passes it, whatever backward returns for it
        elif parameter.default is not parameter.empty and (parameter.default is not None or reading.constant):
            out = [*[v for v in seen if not isinstance(v, torch.Tensor)], parameter.default]
        else:
            out = [*seen, *_candidates(parameter, reading, _shapes(reading, self.wide, self.sizes), self.generator)]
            out += [parameter.default] if parameter.default is None else []
        trained = self._trained(parameter.name)
        return [_as_trained(v, trained) for v in out]

    def misfit(self, combination: tuple) -> int:
        """How far a combination is from what the source says of ranks; backward may still take it, by broadcasting."""
        shapes = [(self.read[p.name], v.shape) for p, v in zip(self.parameters, combination, strict=True) if isinstance(v, torch.Tensor)]
        wrong = sum(40 for reading, shape in shapes if reading.rank >= 0 and len(shape) != reading.rank or len(shape) < reading.least or reading.laid and 1 in shape)
        return wrong + 40 * (self.wide > 0 and max(len(shape) for _, shape in shapes) < self.wide)

    def _trained(self, name: str) -> bool:
        """Whether its gradient is to be judged: backward returns one, or the file (or its name) says that it is a parameter."""
        given = any(v.trained if isinstance(v, Unknown) else isinstance(v, torch.Tensor) and v.requires_grad for v in self.seen[name])
        if given or not self.read[name].constant:
            return True
        # The weights of a loss are constants, and go by the same names; so do those that the file passes, or calls, frozen.
        a_loss = any(INDEX_NAMES.search(p.name) for p in self.parameters)
        passed = any(v.constant if isinstance(v, Unknown) else is_float(v) for v in self.seen[name])
        return not (a_loss or passed or self.frozen) and trained_by_name(name)


def _text(function: type) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _as_trained(value: typing.Any, trained: bool) -> typing.Any:
    return value.detach().requires_grad_(trained) if is_float(value) else value


def _chosen(subject: Subject, choices: _Choices) -> Guess:
    accepted: list[tuple[int, tuple]] = []
    error: Exception | None = None
    # float32 only where forward takes nothing else: some kernels know no other type.
    single = [[_as_trained(v.detach().float(), v.requires_grad) if is_float(v) else v for v in c] for c in choices.candidates]
    for candidates in (lambda: choices.candidates, lambda: single, choices.turned):
        search = Search(subject, candidates())
        for values, run in search.accepted():
            if not any(is_float(o) and o.numel() for o in run.outputs):
                continue
            doubt = _doubt(subject, values) + choices.misfit(values)
            accepted.append((doubt, values))
            if not doubt or len(accepted) >= ACCEPTED:
                break
        error = search.error or error
        if accepted:
            break
    if not accepted:
        why = f" (last: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})" if error else ""
        wanted = " ".join(p.name.upper() for p in choices.parameters)
        raise UsageError(f"{subject.name}: no inputs were found that forward accepts{why}; pass --shapes {wanted}")
    best = _along_another(subject, choices, _told_apart(subject, min(accepted, key=lambda pair: pair[0])[1]))
    shapes = ", ".join(
        f"{p.name} {list(v.shape) if isinstance(v, torch.Tensor) else getattr(v, '__name__', repr(v))}" for p, v in zip(choices.parameters, best, strict=True)
        if isinstance(v, torch.Tensor) or p.default is p.empty
    )  # fmt: skip
    return Guess(best, f"inputs guessed: {shapes}; pass --shapes to choose them")


def _told_apart(subject: Subject, combination: tuple) -> tuple:
    """The guess with dimensions that merely happen to have one size in different ones, as far as forward and backward go along."""
    bench = Bench(subject, Noise(0))
    arguments = arguments_for(subject, combination, bench.generator, made=True)
    bench.state = random_state()
    for other in variants.told_apart(arguments, bench.generator, bench.takes):
        if len(other.values) == len(combination):
            again = tuple(_as_trained(v, o.requires_grad) if is_float(o) else v for v, o in zip(other.values, combination, strict=True))
            if not _doubt(subject, again) or _in_each_others_place(subject, again):
                return again
    return combination


def _in_each_others_place(subject: Subject, combination: tuple) -> bool:
    """Whether the gradients have the inputs' shapes, in another order: equal sizes would hide that they are exchanged."""
    try:
        arguments = arguments_for(subject, combination, Noise(0), made=True)
        raw = Bench(subject, Noise(0)).evaluate(arguments).raw
    except Exception:
        return False
    wanted = [tuple(arguments.values[k].shape) for k in arguments.checked]
    returned = [tuple(raw[k].shape) if k < len(raw) and isinstance(raw[k], torch.Tensor) else () for k in arguments.checked]
    return returned != wanted and sorted(returned) == sorted(wanted)


def _along_another(subject: Subject, choices: _Choices, combination: tuple) -> tuple:
    """The guess along a dimension that backward fails for, where only that backward takes it speaks for the one that was chosen."""
    for k, parameter in enumerate(choices.parameters):
        if not DIM_NAMES.match(parameter.name) or parameter.default is not parameter.empty or choices.seen[parameter.name]:
            continue
        for dim in (1, 0, -1):
            other = tuple(dim if j == k else v for j, v in enumerate(combination))
            if combination[k] != dim and type(combination[k]) is int and _runs(subject, other) and _doubt(subject, other) >= 30 > _doubt(subject, combination):
                return other
    return combination


def _doubt(subject: Subject, combination: tuple) -> int:
    """How much speaks against a guess that forward accepts; 0 where nothing does.

    forward may accept by broadcasting what it was never meant for. Of several guesses the likeliest is one that backward takes too,
    with gradients of the inputs' own shapes, and whose outputs have no more dimensions than the inputs.
    """
    try:
        arguments = arguments_for(subject, combination, Noise(0), made=True)
        evaluation = Bench(subject, Noise(0)).evaluate(arguments)
    except Exception:
        return 1000
    weights = {"raises": 100, "shape": 30, "unexpected": 30, "count": 30, "not-tensor": 30, "none": 10}
    doubt = sum(SELF_EVIDENT if isinstance(p.exception, BUGS) else weights.get(p.kind, 0) for p in evaluation.problems)
    doubt += sum(50 for o in evaluation.run.outputs if is_float(o) and not bool(o.isfinite().all()))
    doubt += sum(35 for k in range(len(combination)) if _one_mode_only(subject, combination, k))
    # What may be left out belongs to a whole test; only a misfit speaks for leaving it out.
    doubt += sum(2 * SELF_EVIDENT for v in combination if v is None)
    values = arguments.values
    for k in arguments.checked:
        grad = evaluation.raw[k] if k < len(evaluation.raw) else None
        doubt += isinstance(grad, torch.Tensor) and grad.shape != values[k].shape
    rank = max(v.ndim for v in values if isinstance(v, torch.Tensor))
    # A single number, or a dimension of one, fits everywhere: of several guesses one without them says more.
    numbers = [n for n, v in zip(arguments.names, values, strict=True) if isinstance(v, torch.Tensor) and v.numel() == 1]
    doubt += 2 * sum(not SETTING_NAMES.match(name) for name in numbers)
    doubt += any(is_float(o) and o.ndim > rank and o.numel() == max(v.numel() for v in values if isinstance(v, torch.Tensor)) for o in evaluation.run.outputs)
    return doubt


def _one_mode_only(subject: Subject, combination: tuple, k: int) -> bool:
    """Whether an input says that the model is trained, or is not, and forward refuses the rest in the other mode."""
    if type(combination[k]) is not bool or not MODE_NAMES.search(list(subject.signature.parameters)[k]):
        return False
    return not _runs(subject, tuple(not v if j == k else v for j, v in enumerate(combination)))


def _candidates(parameter: inspect.Parameter, reading: Reading, shapes: list[tuple[int, ...]], generator: torch.Generator) -> list:
    """What an argument may be, likeliest first, by its annotation, its uses and its name."""
    note = "" if parameter.annotation is parameter.empty else parameter.annotation
    note = note if isinstance(note, str) else getattr(note, "__name__", "")
    name = parameter.name
    as_tensor = (not reading.constant or reading.tensor or note.rpartition(".")[2] == "Tensor") and note not in PLAIN
    setting = as_tensor and SETTING_NAMES.match(name) is not None
    if setting:
        shapes = sorted(shapes, key=lambda shape: (reading.rank >= 0 and len(shape) != reading.rank, len(shape) > 1, len(shape)))
    floats = [torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") for shape in shapes]
    floats = [v.abs() for v in floats] if setting or VARIANCE_NAMES.search(name) else floats
    if not as_tensor:
        if reading.values:
            return [*reading.values]
        if note == "bool" or reading.flag and note not in ("int", "float"):
            return [True, False]
        if note == "int" or reading.whole or (not note and INTEGER_NAMES.match(name)):
            # A factor or power of 1 hides what is forgotten of it, one of 2 what was written out; a dimension is likelier 1.
            if MANY_NAMES.search(name):
                return [2, 1, 3, 4]  # one head, or one group, hides how several lie in memory
            return [1, 2, 3, 0, -1] if PLACE_NAMES.search(name) else [3, 2, 1, 0, -1]
        if BELOW.match(name) or ABOVE.match(name):
            return [-0.6, -1] if BELOW.match(name) else [0.8, 2]
        if bound := QUANTISER_BOUNDS.match(name):
            return [-2 if bound[1].lower() in ("min", "n") else 2]
        numbers = [0.7, 3, 2, 1]
        if note == "float" or (not note and FLOAT_NAMES.match(name)):
            return [*numbers, floats[0]]
        if reading.plain and reading.kept:
            return numbers  # a tensor would be saved, not kept
        if not reading.index and not reading.mask and not INDEX_NAMES.search(name) and not MASK_NAMES.search(name):
            return [*numbers, *floats]
    whole: list = [1, 0] if reading.kept and not as_tensor else []
    whole += [torch.tensor([1, 0, 1], device="cpu"), *(torch.randint(0, 2, s, generator=generator, device="cpu") for s in ((2,), (3, 4), (2, 3), (4,), (2, 3, 4)))]
    if reading.constant and (reading.index or INDEX_NAMES.search(name)):
        return [*whole, *floats[:4]]
    masks = [torch.randint(0, 2, s, generator=generator, device="cpu").bool() for s in ((3, 4), (2, 3, 4), (2, 3), (4,), (3,))]
    if reading.constant and (reading.mask or MASK_NAMES.search(name)):
        return [*masks, *floats[:4]]
    if not reading.constant:
        return [*floats, *([0.7] if not reading.tensor else [])]
    others = [next(v for v in floats if v.ndim == n) for n in (1, 2, 3) if all(v.ndim != n for v in floats[:4])]
    return [*floats[:4], *others, *whole[:4], masks[0], *floats[4:], 0.7, 1]


def _shapes(reading: Reading, wide: int, sizes: list[int]) -> list[tuple[int, ...]]:
    """The shapes to try, those of the rank that the source asks for first; `sizes` are of inputs that are known."""
    rank = reading.rank if reading.rank >= 0 else wide or -1
    shapes = list(SHAPES)
    if rank > 0:
        usual = next(s for s in SHAPES if len(s) == min(rank, 5))
        shapes[:0] = [(*usual[:d], n, *usual[d + 1 :]) for n in sizes for d in range(rank) if n not in usual]

    def distance(shape: tuple[int, ...]) -> int:
        return (rank >= 0 and len(shape) != rank) + (len(shape) < reading.least) + (reading.laid and 1 in shape)

    return [*([reading.shape] if reading.shape else []), *sorted(shapes, key=distance)]
