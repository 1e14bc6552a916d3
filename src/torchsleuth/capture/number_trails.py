"""One number followed by syntax: through literals, names and parameters, to the callers of a function and the files it imports from."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.capture.classes import base_call, method_of
from torchsleuth.capture.finished import Frame, frame_at
from torchsleuth.capture.imported import module_tree
from torchsleuth.capture.number_objects import ThroughObjects
from torchsleuth.capture.number_sources import ANOTHER, At, Crossing, Invoked, Source, only
from torchsleuth.capture.partials import filled, partials_of
from torchsleuth.capture.scopes import (
    Selector,
    argument_for,
    bound_to,
    class_of,
    comprehensions_around,
    constant_value,
    default_of,
    enclosing,
    key_of,
    lambda_around,
    loosened,
    parameter_of,
    position_in,
    positional_names,
    reaching,
    stores_into,
)  # fmt: skip

_MOST_CROSSINGS = 3


class Trail(ThroughObjects):
    """One number's way back."""

    def __init__(self, files: tuple[str, ...], number: int) -> None:
        self._files = files
        self._number = number
        self._open: set[tuple[int, str, tuple[Selector, ...]]] = set()  # names on the way: `n = n or 8` leads back to itself

    def follow(self, at: At, node: ast.AST) -> Source | None:
        """None where the trail contradicts itself; an expression that cannot be followed further is an end."""
        if at.left <= 0:
            return None
        if isinstance(node, ast.Constant):
            return at.end(node) if type(node.value) is int and node.value == self._number else ANOTHER
        if at.selectors and isinstance(at.selectors[0], Invoked):  # an object of a class of the program's, no list or array
            if isinstance(node, ast.Call):
                return self._returned(at, node)
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.BoolOp, ast.NamedExpr)):
                return None
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        found = method(at, node) if method is not None else None
        if found is not None and found is not ANOTHER:
            return found
        end = self._end(at, node, found)
        if end is None and _is_below(node, self._number):
            return ANOTHER
        return found if end is None else end._replace(refuted=found is ANOTHER)

    def _end(self, at: At, node: ast.AST, found: Source | None) -> Source | None:
        """The expression at which a trail ends that leads no further."""
        return at.end(node) if self._may_end(node) else None

    def _one(self, found: list[Source | None]) -> Source | None:
        return only(found)

    def _may_end(self, node: ast.AST) -> bool:
        """A container is no number, and arithmetic on constants is another one."""
        if isinstance(node, (ast.stmt, ast.Starred, ast.NamedExpr, ast.List, ast.Tuple, ast.Set, ast.Dict)):
            return False
        value = constant_value(node)
        return (value is None or value == self._number) and not _is_below(node, self._number)

    # -- by syntax --------------------------------------------------------------------------------

    def _subscript(self, at: At, node: ast.Subscript) -> Source | None:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return None
        if isinstance(node.slice, ast.Slice):
            return self.follow(at.of(*loosened(at.selectors)), node.value)
        return self.follow(at.of(*key_of(node.slice), *at.selectors), node.value)

    def _starred(self, at: At, node: ast.Starred | ast.NamedExpr) -> Source | None:
        return self.follow(at.of(*at.selectors), node.value)

    _namedexpr = _starred

    def _list(self, at: At, node: ast.List | ast.Tuple | ast.Set) -> Source | None:
        if not at.selectors:
            return None
        first, rest = at.selectors[0], at.selectors[1:]
        if type(first) is int and not any(isinstance(element, ast.Starred) for element in node.elts):
            return self._element(at, node.elts[first], rest) if -len(node.elts) <= first < len(node.elts) else None
        return self._one([self._element(at, element, loosened(at.selectors) if isinstance(element, ast.Starred) else rest) for element in node.elts])

    def _element(self, at: At, element: ast.AST, selectors: tuple[Selector, ...]) -> Source | None:
        """One of `mlp([inputs, *hidden, 1])`: who writes out a list for a function chooses what is in it."""
        inside = at.of(*selectors)
        if at.handed and not isinstance(element, ast.Starred):
            inside = inside._replace(crossed=_crossed(inside, at.frame, element, ""))
        return self.follow(inside, element)

    _tuple = _set = _list

    def _dict(self, at: At, node: ast.Dict) -> Source | None:
        if not at.selectors:
            return None
        key, rest = at.selectors[0], at.selectors[1:]
        if key is None:
            return self._one([self.follow(at.of(*rest) if name is not None else at.of(*at.selectors), value) for name, value in zip(node.keys, node.values)])
        for name, value in reversed(list(zip(node.keys, node.values))):  # the last entry of a name counts
            if name is None:
                found = self.follow(at.of(*at.selectors), value)
                if found is not None and found is not ANOTHER:
                    return found
            elif isinstance(name, ast.Constant) and name.value == key:
                return self.follow(at.of(*rest), value)
        return None

    def _ifexp(self, at: At, node: ast.IfExp) -> Source | None:
        return self._one([self.follow(at.of(*at.selectors), branch) for branch in (node.body, node.orelse)])

    def _boolop(self, at: At, node: ast.BoolOp) -> Source | None:
        return self._one([self.follow(at.of(*at.selectors), value) for value in node.values])

    def _binop(self, at: At, node: ast.BinOp) -> Source | None:
        if not at.selectors:
            return None
        if isinstance(node.op, ast.BitOr):  # of dictionaries: the right one counts
            found = self.follow(at.of(*at.selectors), node.right)
            return found if found is not None and found is not ANOTHER else self.follow(at.of(*at.selectors), node.left)
        sides = (node.left, node.right) if isinstance(node.op, ast.Add) else (node.left,)
        return self._one([self.follow(at.of(*loosened(at.selectors)), side) for side in sides])

    def _listcomp(self, at: At, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Source | None:
        return self.follow(at.of(*at.selectors[1:]), node.elt) if at.selectors else None

    _setcomp = _generatorexp = _listcomp

    def _dictcomp(self, at: At, node: ast.DictComp) -> Source | None:
        """`{name: dict(entries) for name, entries in DEFAULTS.items()}`: an entry of one of them, whichever has the number."""
        return self.follow(at.of(*at.selectors[1:]), node.value) if at.selectors else None

    # -- names ------------------------------------------------------------------------------------

    def _name(self, at: At, node: ast.Name) -> Source | None:
        key = (id(at.frame.scope), node.id, at.selectors)
        if key in self._open:
            return None
        self._open.add(key)
        try:
            return self._named(at, node)
        finally:
            self._open.discard(key)

    def _named(self, at: At, node: ast.Name) -> Source | None:
        name, frame = node.id, at.frame
        for comprehension in comprehensions_around(frame.scope, node):
            for generator in comprehension.generators:
                where = position_in(generator.target, name)
                if where is not None:
                    return self.follow(at.of(None, *where, *at.selectors), generator.iter)
        function = lambda_around(frame.scope, node, name)
        if function is not None:
            return self._parameter(at.inside(Frame(frame.filename, function, "<lambda>", None, None), *at.selectors), name)
        bound = bound_to(frame.scope, name)
        last = reaching(frame.scope, node) if len(bound) > 1 else None
        if last is not None and not at.selectors:
            return self.follow(at.of(), last)
        ways = [self.follow(at.of(*where, *at.selectors), value) for value, where in bound]
        is_parameter = parameter_of(frame.scope, name) is not None
        if is_parameter:
            ways.append(self._parameter(at, name))
        stores = stores_into(frame.scope, name, at.selectors) if at.selectors else ()
        stored = [self.follow(at.of(*rest), value) for value, rest in stores]
        if ways or is_parameter or any(way is not None and way is not ANOTHER for way in stored):
            return self._one([*ways, *stored])
        if not isinstance(frame.scope, ast.Module):
            outer = enclosing(frame.filename, frame.scope)  # a closure's variable, or a global
            if outer is None:
                return None
            around = frame_at(frame.filename, frame.scope) if not isinstance(outer, ast.Module) else None
            home = _running(frame, outer) or around or Frame(frame.filename, outer, "", None, None)
            return self._name(at.inside(home, *at.selectors), node)
        owner = self._defined(frame, node) if at.selectors else None
        if owner is not None and isinstance(owner[1], ast.ClassDef):  # `Model(Config)`: the class itself holds the numbers
            return self._of_class(at.of(*at.selectors[1:]), owner[0], owner[1], at.selectors[0])
        return self._imported(at, name)

    def _imported(self, at: At, name: str) -> Source | None:
        """`from config import WIDTH`."""
        for statement in ast.walk(at.frame.scope):
            if isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        tree = module_tree(statement.module, statement.level)
                        if tree is not None:
                            return self._name(at.inside(Frame(*tree, "", None, None), *at.selectors), ast.Name(alias.name, ast.Load()))
        return None

    def _parameter(self, at: At, name: str) -> Source | None:
        frame = at.frame
        calls = [(frame.outer, frame.call)] if frame.outer is not None and frame.call is not None else list(self._callers(frame))
        if not calls:
            return self._uncalled(at, name)
        return self._one([self._given(at, outer, call, name) for outer, call in calls])

    def _given(self, at: At, outer: Frame, call: ast.Call, name: str) -> Source | None:
        """What one call gives for a parameter: by name, by position, out of `*args` or `**kwargs`, or by default."""
        frame, of_self, call = at.frame, at.frame.arguments == "self", filled(outer, call)
        arguments = frame.scope.args  # type: ignore[attr-defined]
        if arguments.kwarg is not None and arguments.kwarg.arg == name:
            if not at.selectors or not isinstance(at.selectors[0], str):
                return None
            name, at = at.selectors[0], at.of(*at.selectors[1:])
        if arguments.vararg is not None and arguments.vararg.arg == name:
            rest = ast.Tuple(list(call.args[len(positional_names(frame.scope, of_self)) :]), ast.Load())
            return self.follow(at.inside(outer, *at.selectors), rest)
        given, certain = argument_for(call, frame.scope, of_self, name)
        if given is not None:
            inside = at.inside(outer, *at.selectors)._replace(crossed=_crossed(at, outer, given, name), handed=isinstance(given, (ast.List, ast.Tuple)))
            return self.follow(inside, given)
        found = self._out_of_star(at, outer, call, name)
        for keyword in call.keywords:
            if keyword.arg is None and found is None:
                way = self.follow(at.inside(outer, name, *at.selectors), keyword.value)
                found = found or (way if way is not ANOTHER else None)
        default = default_of(frame.scope, name) if found is None and (certain or not any(isinstance(a, ast.Starred) for a in call.args)) else None
        return found or (self.follow(at.of(*at.selectors), default) if default is not None else None)

    def _out_of_star(self, at: At, outer: Frame, call: ast.Call, name: str) -> Source | None:
        """`build(*spec)`: the element of `spec` at the parameter's place, behind what is written before the star."""
        names = positional_names(at.frame.scope, at.frame.arguments == "self")
        stars = [k for k, argument in enumerate(call.args) if isinstance(argument, ast.Starred)]
        if len(stars) != 1 or name not in names or names.index(name) < stars[0] or stars[0] != len(call.args) - 1:
            return None
        starred = call.args[stars[0]].value  # type: ignore[attr-defined]
        found = self.follow(at.inside(outer, names.index(name) - stars[0], *at.selectors), starred)
        return found if found is not ANOTHER else None

    def _uncalled(self, at: At, name: str) -> Source | None:
        """Nobody calls the function by its name: `KINDS[kind](**options)`, or a library calls it back.

        Then a keyword of the parameter's name that is the number is taken for what was given, where there is only one; else
        the default, where it is the number.
        """
        partial = self._out_of_partials(at, name) if not isinstance(at.frame.scope, ast.Lambda) else None
        if partial is not None or at.selectors:
            return partial
        for filename in dict.fromkeys((at.frame.filename, *self._files)):
            tree = source.tree_of(filename) if not isinstance(at.frame.scope, ast.Lambda) else None
            given = [k.value for call in ast.walk(tree) if isinstance(call, ast.Call) for k in call.keywords if k.arg == name] if tree is not None else []
            same = [value for value in given if constant_value(value) == self._number]
            if len(same) == 1:
                around = frame_at(filename, same[0])
                return self.follow(at.inside(around), same[0]) if around is not None else None
        default = default_of(at.frame.scope, name)
        return self.follow(at.of(), default) if isinstance(default, ast.Constant) else None

    def _out_of_partials(self, at: At, name: str) -> Source | None:
        """`partial(collate, pad=0)`, which a library calls: what stands in it for the parameter."""
        ways, called = [], getattr(at.frame.scope, "name", "")
        for filename in dict.fromkeys((at.frame.filename, *self._files)):
            tree = source.tree_of(filename)
            for call, stands_for in partials_of(tree, called) if tree is not None and called else ():
                given, _ = argument_for(stands_for, at.frame.scope, at.frame.arguments == "self", name)
                around = frame_at(filename, call)
                ways += [self.follow(at.inside(around, *at.selectors), given)] if given is not None and around is not None else []
        return self._one(ways) if ways else None

    def _callers(self, frame: Frame) -> typing.Iterator[tuple[Frame, ast.Call]]:
        """Every call in the program's files that may be of this function: its name is all that tells."""
        names = {getattr(frame.scope, "name", "")}
        if names == {"__init__"}:
            owner = class_of(frame.filename, frame.scope)
            names = {owner.name} if owner is not None else set()
            for kind, home in self._derived(names):
                own = method_of(kind, "__init__")
                handed = base_call(own) if own is not None else None
                if own is None:
                    names.add(kind.name)
                elif handed is not None:
                    yield Frame(home, own, f"{kind.name}.__init__", None, None, "self"), handed
        if names <= {"", "forward"}:
            return
        for filename in dict.fromkeys((frame.filename, *self._files)):
            tree = source.tree_of(filename)
            for call in ast.walk(tree) if tree is not None else ():
                if isinstance(call, ast.Call) and (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) in names:
                    around = frame_at(filename, call)
                    if around is not None:
                        yield around, call

    def _derived(self, names: set[str]) -> typing.Iterator[tuple[ast.ClassDef, str]]:
        """The classes of the program that are made of one of these."""
        for filename in self._files:
            tree = source.tree_of(filename)
            for kind in ast.walk(tree) if tree is not None else ():
                if isinstance(kind, ast.ClassDef) and any(getattr(base, "id", getattr(base, "attr", "")) in names for base in kind.bases):
                    yield kind, filename


def _crossed(at: At, outer: Frame, given: ast.AST, name: str) -> tuple[Crossing, ...]:
    """Up to the first caller that chose the number. One that hands on its own parameter of the same name says nothing new, and
    a whole configuration that is handed over (`Model(cfg)`) is not where the number came from."""
    if at.selectors or any(crossing.chose for crossing in at.crossed) or len(at.crossed) == _MOST_CROSSINGS:
        return at.crossed
    handed_on = isinstance(given, ast.Name) and parameter_of(outer.scope, given.id) is not None
    if handed_on and given.id == name:  # type: ignore[attr-defined]
        return at.crossed
    return (*at.crossed, Crossing(outer.filename, given, outer.name, not handed_on))


def _is_below(node: ast.AST, number: int) -> bool:
    """`step % 2` is no 2."""
    end = constant_value(node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) else None
    return end is not None and 0 < end <= number


def _running(frame: Frame, scope: ast.AST) -> Frame | None:
    outer = frame.outer
    while outer is not None and outer.scope is not scope:
        outer = outer.outer
    return outer
