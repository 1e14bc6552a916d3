"""What torch's messages say: one reader per message, which turns its numbers into an answer. No torch here.

A reader is a function decorated with `@reads(pattern, example=…)` in any module of this package, or with
`@answers(…)` for a question that quotes no message; nothing is registered. It gets the numbers of one message and
returns a `Reading`: what they mean, the causes in order of likelihood, a program that raises the same message, the
fix, and the explanations that are often given and false. Every program here is run by the tests, which also check
that the reproducing program raises the very message it explains.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import field

from torchsleuth.frozen import frozen


@frozen
class Program:
    """A program and what it does: `raises` is part of the "Type: message" it ends with, `prints` of its output."""

    source: str
    raises: str = ""
    prints: str = ""
    says: str = ""  # said before it, where "This raises it" or "This runs" would not be enough
    needs_cuda: bool = False


@frozen
class Falsehood:
    """An explanation that is often given, why it is false, and a program that shows it."""

    claim: str
    truth: str
    program: Program | None = None


@frozen
class Reading:
    """The answer to one message."""

    title: str
    meaning: str
    causes: tuple[str, ...] = ()  # in order of likelihood
    program: Program | None = None  # raises the same message
    fixes: tuple[str, ...] = ()
    remedy: Program | None = None  # the same program, put right
    falsehoods: tuple[Falsehood, ...] = ()
    rule: str = ""  # the rule this answer belongs to, where it is not that of the message; NO_RULE for none


NO_RULE = "(none)"


@frozen
class Found:
    """What a reader is given: the groups of its pattern, and the text around the message."""

    match: re.Match[str]
    text: str  # everything the user gave: a question, a message or a whole log
    during_backward: bool = False
    type: str = ""  # the exception's, where the text names it

    def __getitem__(self, group: str) -> str:
        return self.match[group]

    def has(self, group: str) -> bool:
        return self.match.groupdict().get(group) is not None

    def int(self, group: str) -> int:
        return int(self.match[group])

    def ints(self, group: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"-?\d+", self.match[group]))


@frozen
class Message:
    """A message torch raises, how to recognise it, and how to read it."""

    name: str
    patterns: tuple[re.Pattern[str], ...]  # with the numbers
    fragments: tuple[re.Pattern[str], ...]  # enough to know the message by, without its numbers
    example: str  # "Type: message", real; what is read where the text gives no numbers
    read: Callable[[Found], Reading] = field(repr=False)
    rule: str = ""  # the rule it belongs to, where no rule's own messages say so

    @property
    def raises(self) -> str:
        return self.example.split(":", 1)[0] if self.example else ""

    def found_in(self, text: str, whole: str, during_backward: bool = False, type_name: str = "") -> Found | None:
        """The longest occurrence with its numbers, or None."""
        matches = [match for pattern in self.patterns if (match := pattern.search(text))]
        matches = [match for match in matches if _possible(match)]
        best = max(matches, key=lambda match: match.end() - match.start(), default=None)
        return None if best is None else Found(best, whole, during_backward, type_name)

    def hinted_in(self, text: str) -> int:
        """How much of the text a fragment covers; 0 where none is there."""
        return max((m.end() - m.start() for pattern in self.fragments if (m := pattern.search(text))), default=0)


# Groups that count dimensions. No tensor has more than 64, so a larger number is not torch's, and no program is built from it.
_DIMENSIONS = frozenset({"dim", "dims", "given", "at", "letters", "low", "high", "takes"})


def _possible(match: re.Match[str]) -> bool:
    numbers = (value for group, value in match.groupdict().items() if group in _DIMENSIONS and value is not None)
    return all(abs(int(number)) <= 64 for number in numbers if re.fullmatch(r"-?\d{1,99}", number))


@frozen
class Question:
    """A question that quotes no message. Every one of `words` must occur."""

    name: str
    words: tuple[re.Pattern[str], ...]
    read: Callable[[str], Reading] = field(repr=False)
    rule: str = ""

    def asked_in(self, text: str) -> bool:
        return all(pattern.search(text) for pattern in self.words)


def reads(*patterns: str, example: str, fragments: tuple[str, ...] = (), rule: str = ""):
    def wrapped(function: Callable[[Found], Reading]) -> Message:
        return Message(
            function.__name__.replace("_", "-"),
            tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns),
            tuple(re.compile(pattern, re.IGNORECASE) for pattern in fragments),
            example,
            function,
            rule,
        )

    return wrapped


def answers(*words: str, rule: str = ""):
    def wrapped(function: Callable[[str], Reading]) -> Question:
        compiled = tuple(re.compile(word, re.IGNORECASE) for word in words)
        return Question(function.__name__.replace("_", "-"), compiled, function, rule)

    return wrapped


def raising(*lines: str, raises: str, says: str = "", needs_cuda: bool = False) -> Program:
    return Program(_source(lines), raises=raises, says=says, needs_cuda=needs_cuda)


def running(*lines: str, prints: str = "", says: str = "") -> Program:
    return Program(_source(lines), prints=prints, says=says)


# Said before a program where the message is of an older torch than the one the program runs on.
OLD_WORDS = "In the words of today's PyTorch this raises:"


def _source(lines: tuple[str, ...]) -> str:
    own = [line for line in lines if line.startswith(("import ", "from "))]
    body = "\n".join(line for line in lines if line not in own)
    imports = ["import torch", *own]
    if re.search(r"(?<![.\w])nn\.", body):
        imports.append("from torch import nn")
    if re.search(r"(?<![.\w])F\.", body):
        imports.append("import torch.nn.functional as F")
    return "\n".join(imports) + "\n\n" + body + "\n"


def shape(sizes: tuple[int, ...]) -> str:
    """Sizes the way torch writes them: `[1, 32, 100]`."""
    return f"[{', '.join(map(str, sizes))}]"


def call(sizes: tuple[int, ...]) -> str:
    """Sizes the way a factory takes them: `1, 32, 100`; `()` for a scalar."""
    return ", ".join(map(str, sizes)) if sizes else "()"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def legal(size: int) -> str:
    """Which indices a dimension of this size takes."""
    if size == 0:
        return "it has no elements, so no index is legal"
    if size == 1:
        return "the only legal indices are 0 and -1"
    return f"legal indices are 0 to {size - 1} (or -{size} to -1, counted from the end)"


# The names messages use for dtypes: C++ names, the old tensor type names, and torch's own.
DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "c10::half": "float16", "bfloat16": "bfloat16",
    "c10::bfloat16": "bfloat16", "long": "int64", "long int": "int64", "int": "int32", "short": "int16",
    "char": "int8", "signed char": "int8", "byte": "uint8", "unsigned char": "uint8", "bool": "bool",
    "complexfloat": "complex64", "complexdouble": "complex128",
}  # fmt: skip


def dtype(name: str) -> str:
    """`Double`, `c10::Half`, `torch.cuda.FloatTensor` or `float64` as `torch.float64`."""
    bare = re.sub(r"^torch\.(cuda\.)?", "", name.strip()).removesuffix("Tensor")
    return "torch." + DTYPES.get(bare.lower(), bare)


@functools.cache
def all_messages() -> tuple[Message, ...]:
    return tuple(value for value in _values() if isinstance(value, Message))


@functools.cache
def all_questions() -> tuple[Question, ...]:
    return tuple(value for value in _values() if isinstance(value, Question))


def _values() -> Iterator[object]:
    for found in pkgutil.iter_modules(__path__, __name__ + "."):
        yield from vars(importlib.import_module(found.name)).values()
