"""Where a number came from that plain Python put into a tensor: through lists, tables, comprehensions and datasets to the
expression that made it.

By the rules of `numbers`, with what data needs beside configurations: lists that are filled piece by piece, tables with
computed keys, the samples behind a DataLoader. Data holds many numbers, and a small one may stand in several places: a
trail that leaves two ways ends before, at the list or table that holds the number for certain.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth.bindings import returns_of
from torchsleuth.capture.classes import is_tuple, lineage, method_of
from torchsleuth.capture.collating import joining, loaders_given
from torchsleuth.capture.finished import Frame
from torchsleuth.capture.number_sources import ANOTHER, At, Invoked, Source
from torchsleuth.capture.number_trails import Trail
from torchsleuth.capture.scopes import Selector, constant_value, key_of, loosened, signed_constant, stores_into

# They hold the very numbers they are given.
COPIES = frozenset({
    "tensor", "as_tensor", "asarray", "array", "from_numpy", "LongTensor", "IntTensor", "Tensor", "list", "tuple",
})  # fmt: skip
_SAME_TENSOR = frozenset({
    "to", "long", "int", "cuda", "cpu", "clone", "detach", "contiguous", "numpy", "tolist", "pin_memory", "copy", "astype", "type",
})  # fmt: skip
_DRAWS = frozenset({"sample", "choices", "shuffle", "sorted", "deque"})  # hold elements of what they are given
_LOOKS_UP = frozenset({"get", "pop", "popleft", "setdefault", "zip", "choice", "next", "chain"})
_EMPTY = frozenset({"list", "dict", "set", "deque", "OrderedDict", "Counter", "defaultdict"})
_JOINED = frozenset({"stack", "vstack", "cat", "concat", "concatenate", "pad_sequence"})
_HAND_OUT = _JOINED | {"DataLoader", "TensorDataset", "Subset", "random_split"}
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_CONTAINERS = (*_LITERALS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Call, ast.BinOp)

_ZEROS, _ONES = frozenset({"zeros", "zeros_like", "new_zeros"}), frozenset({"ones", "ones_like", "new_ones"})
_COUNTS = frozenset({"randint", "randint_like", "arange", "randperm"})
# They take no value from anybody: a number of the program's that stands in such a tensor was written there later.
BLANK = _ZEROS | _ONES | _COUNTS | {"empty", "empty_like", "new_empty"}

# Which argument of a call a value is that fills a tensor: by position, and by name.
_FILLS = {
    "full": (1, "fill_value"), "full_like": (1, "fill_value"), "new_full": (1, "fill_value"), "fill_": (0, "value"),
    "masked_fill": (1, "value"), "masked_fill_": (1, "value"), "pad_sequence": (2, "padding_value"), "pad": (3, "value"),
}  # fmt: skip


def value_argument(call: ast.Call, position: tuple[Selector, ...]) -> tuple[ast.AST, tuple[Selector, ...]] | None:
    """The argument of a call that holds a value of the tensor it makes, and where in it the value lies."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    if name in COPIES:
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("data", "obj")), None)
        return (given, position) if given is not None else None
    if name in _FILLS:
        place, word = _FILLS[name]
        given = next((k.value for k in call.keywords if k.arg == word), call.args[place] if place < len(call.args) else None)
        return (given, ()) if given is not None else None
    return None


def _cannot_hold(name: str, call: ast.Call, number: int) -> bool:
    """Whether a call makes a tensor that does not hold this number as it comes: `randint(0, 64, …)` draws no 64."""
    if name in _ZEROS or name in _ONES:
        return number != (name in _ONES)
    if name not in _COUNTS:
        return False
    given = call.args[1:] if name == "randint_like" else call.args
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    sized = name == "randint" and bool(given) and isinstance(given[-1], (ast.Tuple, ast.List))
    bounds = list(given[:-1] if sized else given[:2])
    high = named.get("high", named.get("end", named.get("n", bounds[1] if len(bounds) > 1 else bounds[0] if bounds else None)))
    if any(isinstance(bound, ast.Starred) for bound in bounds) or name == "randint" and not sized and "size" not in named:
        return False
    end = constant_value(high) if high is not None else None
    return end is not None and 0 <= end <= number


def _is_list(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_list(node.left) or isinstance(node.op, ast.Add) and _is_list(node.right)
    return isinstance(node, (ast.List, ast.Tuple, ast.ListComp)) or isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("list", "tuple", "tolist", "split")


def only_holds(node: ast.AST, number: int) -> bool:
    """A list or table that is made of what it is given: it neither counts, as `enumerate` does, nor is the number written in it."""
    holds = isinstance(node, (*_LITERALS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) or isinstance(node, ast.BinOp) and _is_list(node)
    holds = holds or isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _DRAWS | _LOOKS_UP
    return holds and all(signed_constant(part) != number for part in ast.walk(node))


def _before_turning(name: str, call: ast.Call, selectors: tuple[Selector, ...], rank: int) -> tuple[Selector, ...] | None:
    """The position in a tensor, before `.t()` or `.unsqueeze(1)`; for a tensor alone, no table of several."""
    if name == "t" and len(selectors) == 2:  # of a part of it, too: `source, goal = edges.t()`
        return selectors[::-1]
    if len(selectors) != rank:
        return None
    if name == "unsqueeze":
        place = signed_constant(call.args[0]) if len(call.args) == 1 else None
        if place is None or not -rank <= place < rank:
            return None
        return (*selectors[: place % rank], *selectors[place % rank + 1 :])
    return selectors[::-1] if rank == 2 and name == "transpose" and len(call.args) == 2 else None


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# What an expression in a function stands for in objects that still live: all that is found.
Live = typing.Callable[[Frame, ast.expr], list[object]]


class Values:
    """Follows values. `files` are the program's own."""

    def __init__(self, files: typing.Iterable[str], live: Live) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._live = live

    def follow(self, frame: Frame, node: ast.AST, position: tuple[Selector, ...], number: int) -> Source | None:
        """The expression behind the value at this position of what `node` stands for; None where it is `node` itself."""
        found = _ValueTrail(self._files, number, len(position), self._live).follow(At(frame, position), node)
        if found is None or found is ANOTHER or found.refuted or found.node is node or isinstance(found.node, (ast.Name, ast.Attribute)):
            return None
        return found._replace(crossed=())


def _hands_out(node: ast.AST) -> bool:
    """torch's tools for data and for joining tensors make no number themselves."""
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _HAND_OUT


class _ValueTrail(Trail):
    def __init__(self, files: tuple[str, ...], number: int, rank: int, live: Live) -> None:
        super().__init__(files, number)
        self._live = live
        self._rank = rank  # of the tensor that holds the value: so many of the selectors are a position in it

    def follow(self, at: At, node: ast.AST) -> Source | None:
        """`mask[0] = 255`: a number that is stored in a part of an array fills it."""
        written = signed_constant(node)
        if written is not None:
            return Source(at.frame.filename, node, at.frame.name, at.crossed) if written == self._number else ANOTHER
        return super().follow(at, node)

    def _one(self, found: list[Source | None]) -> Source | None:
        """Only where no other way is left, a lost one included: a constant that happens to be the number proves nothing beside another way."""
        there = [result for result in found if result is not None and result is not ANOTHER and not result.refuted]
        if not there:
            return ANOTHER if found and all(result is ANOTHER or result is not None and result.refuted for result in found) else None
        lost = any(result is None for result in found)
        return there[0] if len({(result.filename, id(result.node)) for result in there}) == 1 and not lost else None

    def _end(self, at: At, node: ast.AST, found: Source | None) -> Source | None:
        if any(isinstance(selector, Invoked) for selector in at.selectors):
            return None  # the object, not what its method returns
        if at.selectors and isinstance(node, _CONTAINERS) and found is None and not _hands_out(node):
            if isinstance(node, _LITERALS) and not (node.values if isinstance(node, ast.Dict) else node.elts):
                return None  # nothing is in it yet
            return Source(at.frame.filename, node, at.frame.name, None)
        return super()._end(at, node, found)

    # -- by syntax --------------------------------------------------------------------------------

    def _subscript(self, at: At, node: ast.Subscript) -> Source | None:
        """`rows[:, None]`, of an array: which of its positions are meant."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not at.selectors or not any(isinstance(part, ast.Slice) or _is_none(part) for part in parts) or isinstance(node.slice, ast.Slice):
            return super()._subscript(at, node)
        rest, found = list(at.selectors), []
        for part in parts:
            if not isinstance(part, (ast.Slice, ast.Constant)) or not rest:
                return None
            if isinstance(part, ast.Slice):
                whole = part.lower is None and part.upper is None and part.step is None
                first = rest.pop(0)
                found.append(first if whole else None)
            elif _is_none(part):
                rest.pop(0)
            else:
                found += key_of(part)
        return self.follow(at.of(*found, *rest), node.value)

    def _name(self, at: At, node: ast.Name) -> Source | None:
        """`a = torch.tensor(a)`: the way that leads back to the name itself brings no number of its own."""
        return ANOTHER if (id(at.frame.scope), node.id, at.selectors) in self._open else super()._name(at, node)

    def _list(self, at: At, node: ast.List | ast.Tuple | ast.Set) -> Source | None:
        return super()._list(at, node) if node.elts else ANOTHER  # nothing is in it yet

    _tuple = _set = _list

    def _dict(self, at: At, node: ast.Dict) -> Source | None:
        return super()._dict(at, node) if node.values else ANOTHER

    def _binop(self, at: At, node: ast.BinOp) -> Source | None:
        """`[START] + ids`; where neither side is written as a list, an array may be reckoned with, and the numbers are new."""
        return super()._binop(at, node) if not at.selectors or isinstance(node.op, ast.BitOr) or _is_list(node) else None

    def _augassign(self, at: At, node: ast.AugAssign) -> Source | None:
        """`rows += more`."""
        return self.follow(at.of(*loosened(at.selectors)), node.value) if at.selectors and isinstance(node.op, ast.Add) else None

    def _of_self(self, at: At, name: str) -> Source | None:
        """`self.table`, and what the methods of the class put into it later: `self.table[word] = …`, `self.rows.append(…)`."""
        made = super()._of_self(at, name)
        later = []
        for home, method in self._methods(at.frame) if at.selectors else ():
            for value, rest in stores_into(method, f"{method.args.args[0].arg}.{name}", at.selectors):
                later.append(self.follow(at.inside(home, *rest), value))
        return self._one([made, *later]) if later else made

    def _call(self, at: At, node: ast.Call) -> Source | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if at.selectors:
            if isinstance(node.func, ast.Attribute) and name in _SAME_TENSOR:
                return self.follow(at.of(*at.selectors), node.func.value)
            if name in COPIES and len(node.args) >= 1 and not isinstance(node.args[0], ast.Starred):
                return self.follow(at.of(*at.selectors), node.args[0])
            if name == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred) and len(at.selectors) > 1:
                return self.follow(at.of(None, at.selectors[0], *at.selectors[2:]), node.args[0].value)  # rows become columns
            if name in _DRAWS and node.args:
                drawn = self.follow(at.of(*loosened(at.selectors)), node.args[0])
                own = super()._call(at, node) if isinstance(node.func, ast.Attribute) else None  # `memory.sample(64)`
                return self._one([drawn, own]) if own is not None else drawn
            if name in _EMPTY and not node.args:
                return ANOTHER  # nothing is in it yet
            if _cannot_hold(name, node, self._number):
                return ANOTHER
            if name in ("t", "transpose", "unsqueeze") and isinstance(node.func, ast.Attribute):
                turned = _before_turning(name, node, at.selectors, self._rank)
                return self.follow(at.of(*turned), node.func.value) if turned is not None else None
            if name in _JOINED and node.args and not isinstance(node.args[0], ast.Starred):
                return self._joined(at, node, name)
            if name == "DataLoader" and (joins := next((k.value for k in node.keywords if k.arg == "collate_fn"), None)) is not None:
                return self._batch(at, joins)
            samples = self._samples(at, node, name)
            if samples is not None:
                return self.follow(at.of(*samples[1]), samples[0])
        if isinstance(node.func, ast.Attribute) and name in ("get", "pop", "setdefault") and node.args:
            empty = name == "get" and not at.selectors and self._lacks(at.frame, node.func.value)
            ways = [ANOTHER if empty else self.follow(at.of(*key_of(node.args[0]), *at.selectors), node.func.value)]
            ways += [self.follow(at.of(*at.selectors), default) for default in node.args[1:2]]
            return self._one(ways)
        return super()._call(at, node)

    def _lacks(self, frame: Frame, table: ast.expr) -> bool:
        """Whether the tables that this expression stands for now all are without the number: then it was the default."""
        found = self._live(frame, table)
        return bool(found) and all(isinstance(one, dict) and self._number not in one.values() for one in found)

    def _joined(self, at: At, node: ast.Call, name: str) -> Source | None:
        """`torch.stack(rows)` along the first dimension, or wherever in one of the tensors that are joined; the padding between them."""
        plain = len(node.args) == 1 and not node.keywords and name in ("stack", "vstack")
        ways = [self.follow(at.of(*at.selectors) if plain else at.of(*(None,) * (len(at.selectors) + (name in ("cat", "concat", "concatenate")))), node.args[0])]
        filled = value_argument(node, at.selectors) if name == "pad_sequence" else None
        return self._one([*ways, *([self.follow(at.of(), filled[0])] if filled is not None else [])])

    # -- samples ----------------------------------------------------------------------------------

    def _samples(self, at: At, node: ast.Call, name: str) -> tuple[ast.AST, tuple[Selector, ...]] | None:
        """What a call of torch's data tools takes its samples from, and what of it is meant."""
        given = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "dataset"), None)
        if given is None or isinstance(given, ast.Starred):
            return None
        selectors = at.selectors
        if name == "DataLoader" and not any(k.arg == "collate_fn" for k in node.keywords) and len(selectors) > self._rank > 0:
            # [batch, (part of the sample), row of the batch, position in the sample's part]
            return given, (None, *selectors[1 : len(selectors) - self._rank], *selectors[len(selectors) - self._rank + 1 :])
        if name == "TensorDataset" and len(selectors) > 1 and type(selectors[1]) is int and selectors[1] < len(node.args):
            return node.args[selectors[1]], (None, *selectors[2:])
        if name == "Subset":
            return given, (None, *selectors[1:])
        if name == "random_split" and len(selectors) > 1:
            return given, (None, *selectors[2:])
        return None

    def _of_object(self, at: At, call: ast.Call, filename: str, owner: ast.ClassDef) -> Source | None:
        """An element of an object that this call made: what its `__getitem__` returns, or its `__iter__` yields."""
        if not at.selectors or isinstance(at.selectors[0], str) or is_tuple(owner):
            return super()._of_object(at, call, filename, owner)
        for home, kind in lineage(filename, owner):
            method = method_of(kind, "__getitem__") or method_of(kind, "__iter__")
            if method is not None:
                inside = Frame(home, method, f"{kind.name}.{method.name}", None, None, "self", made=(call, at.frame))
                return self._handed_out(at.inside(inside, *at.selectors[method.name == "__getitem__" :]), method)
        return None

    def _handed_out(self, at: At, function: ast.FunctionDef) -> Source | None:
        """What a function returns or, for an element of what a generator makes, yields."""
        yields = [node for node in ast.walk(function) if isinstance(node, (ast.Yield, ast.YieldFrom)) and node.value is not None]
        ways = [(at.selectors[isinstance(node, ast.Yield) :], node.value) for node in yields] or [(at.selectors, node.value) for node in returns_of(function) if node.value is not None]
        return self._one([self.follow(at.of(*rest), value) for rest, value in ways]) if ways and (at.selectors or not yields) else None

    def _batch(self, at: At, joins: ast.AST) -> Source | None:
        """One of a loader's batches: what the function returns that it was given to join samples."""
        function = joining(at.frame, joins)
        if function is None:
            return None
        home, definition, made = function
        inside = at.inside(Frame(home, definition, getattr(definition, "name", "<lambda>"), None, None, "self" if made is not None else "", made), *at.selectors[1:])
        return self.follow(inside, definition.body) if isinstance(definition, ast.Lambda) else self._handed_out(inside, definition)

    def _returned(self, at: At, node: ast.Call) -> Source | None:
        """`for row in read_rows(path)`, of a generator of the program's."""
        defined = self._defined(at.frame, node.func)
        if defined is None or not isinstance(defined[1], ast.FunctionDef) or not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(defined[1])):
            return super()._returned(at, node)
        return self._handed_out(at.inside(Frame(defined[0], defined[1], defined[1].name, node, at.frame, ""), *at.selectors), defined[1])

    def _parameter(self, at: At, name: str) -> Source | None:
        """`def collate(batch)`, which a DataLoader was given: the samples of its dataset."""
        found = super()._parameter(at, name)
        if found is not None or at.frame.call is not None or not at.selectors:
            return found
        ways = [self.follow(at.inside(around, None, *at.selectors[1:]), dataset) for around, dataset in loaders_given(self._files, at.frame, name)]
        return self._one(ways) if ways else None
