"""Where a number came from that an attribute holds or a call returns: objects, configurations, parsers, functions of the program."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.bindings import returns_of
from torchsleuth.capture.classes import base_call, fields_of, is_enumeration, is_tuple, lineage, method_of, tuple_fields
from torchsleuth.capture.finished import Frame
from torchsleuth.capture.imported import definition_of, module_named
from torchsleuth.capture.number_sources import ANOTHER, At, Crossing, Invoked, Source
from torchsleuth.capture.scopes import class_level, class_of, first_parameter, loosened, option_default, stored_in

_SAME_ELEMENTS = frozenset({"list", "tuple", "reversed", "sorted", "iter", "set"})
# What they return is written in a file, or in a text: no further.
_LOADS = frozenset({"load", "loads", "safe_load", "full_load", "parse", "read_csv", "read_json"})
# `replace(cfg, heads=7)`, `vars(args)`, `asdict(cfg)`, `dict(base, heads=7)`: entries not named in the call are the first argument's.
_SAME_ENTRIES = frozenset({"replace", "deepcopy", "copy", "vars", "asdict", "dict", "Namespace", "OmegaConf.create", "create", "MappingProxyType"})


class ThroughObjects:
    """The part of a trail that leads through attributes and calls; names and literals are the other part's."""

    follow: typing.Callable[[At, ast.AST], Source | None]
    _name: typing.Callable[[At, ast.Name], Source | None]
    _one: typing.Callable[[list[Source | None]], Source | None]

    def _attribute(self, at: At, node: ast.Attribute) -> Source | None:
        frame = at.frame
        if node.attr == "shape" and len(at.selectors) == 1 and type(at.selectors[0]) is int:
            return Source(frame.filename, node, frame.name, at.crossed, at.selectors[0])
        if isinstance(node.value, ast.Name):
            if frame.arguments == "self" and node.value.id == first_parameter(frame.scope):
                return self._of_self(at, node.attr)
            module = module_named(frame.filename, node.value.id)
            if module is not None:
                return self._name(at.inside(Frame(*module, "", None, None), *at.selectors), ast.Name(node.attr, ast.Load()))
            tree = source.tree_of(frame.filename)
            owner = next((c for c in getattr(tree, "body", ()) if isinstance(c, ast.ClassDef) and c.name == node.value.id), None)
            if owner is not None:
                return self._of_class(at, frame.filename, owner, node.attr)
        return self.follow(at.of(node.attr, *at.selectors), node.value)

    def _of_class(self, at: At, filename: str, owner: ast.ClassDef, name: str) -> Source | None:
        """A number that the class itself holds, or one that it is made of."""
        for home, kind in lineage(filename, owner):
            value, tree = class_level(kind, name), source.tree_of(home)
            if value is not None and tree is not None:
                rest = at.selectors[1:] if at.selectors[:1] == ("value",) and is_enumeration(owner) else at.selectors
                return self.follow(at.inside(Frame(home, tree, kind.name, None, None), *rest), _default(value))
        return None

    def _of_self(self, at: At, name: str) -> Source | None:
        """`self.width`: the one assignment in the class; in `__init__` itself its caller is known, elsewhere not."""
        kind, found = self._kind(at.frame), []
        for home, method in self._methods(at.frame):
            for statement in ast.walk(method):
                found += [(home, value, where) for value, where in stored_in(statement, method.args.args[0].arg, name)]
        if not found and kind is not None:
            return self._of_method(at, name, *kind, at.frame.made) or self._of_class(at, *kind, name)
        return self._one([self.follow(at.inside(home, *where, *at.selectors), value) for home, value, where in found])

    def _kind(self, frame: Frame) -> tuple[str, ast.ClassDef] | None:
        """The class of the object whose method runs in `frame`, as far as that is known: a base's method may run for a derived class."""
        owner = class_of(frame.filename, frame.scope)
        made_of = self._defined(frame.made[1], frame.made[0].func) if frame.made is not None else None
        kinds = lineage(*made_of) if made_of is not None and isinstance(made_of[1], ast.ClassDef) else []
        return kinds[0] if any(kind is owner for _, kind in kinds) else (frame.filename, owner) if owner is not None else None

    def _methods(self, frame: Frame) -> typing.Iterator[tuple[Frame, ast.FunctionDef]]:
        """Every method of the object whose method runs in `frame`, and how it runs."""
        whole = self._kind(frame)
        for home, kind, made in self._making(*whole, frame.made) if whole is not None else ():
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and method.args.args:
                    call, outer = made if made is not None and method.name == "__init__" else (None, None)
                    yield frame if method is frame.scope else Frame(home, method, f"{kind.name}.{method.name}", call, outer, "self", frame.made), method

    def _call(self, at: At, node: ast.Call) -> Source | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        selectors = at.selectors
        if isinstance(node.func, ast.Name) and selectors:
            if name in _SAME_ELEMENTS and len(node.args) == 1:
                return self.follow(at.of(*(loosened(selectors) if name in ("reversed", "sorted", "set") else selectors)), node.args[0])
            if name == "zip" and len(selectors) > 1 and type(selectors[1]) is int and selectors[1] < len(node.args):
                return self.follow(at.of(selectors[0], *selectors[2:]), node.args[selectors[1]])
            if name == "enumerate" and len(selectors) > 1 and selectors[1] == 1:
                return self.follow(at.of(selectors[0], *selectors[2:]), node.args[0])
        if name == "len" and len(node.args) == 1 and not selectors and isinstance(node.func, ast.Name):
            return self.follow(at.of(Invoked.of(node, at.frame, "__len__")), node.args[0])
        if isinstance(node.func, ast.Attribute):
            if name == "size" and not node.args and len(selectors) == 1 and type(selectors[0]) is int:  # `batch, length = x.size()`
                return Source(at.frame.filename, node, at.frame.name, at.crossed, selectors[0])
            if name in ("get", "pop") and node.args and isinstance(node.args[0], ast.Constant):
                found = self.follow(at.of(node.args[0].value, *selectors), node.func.value)
                return found if found is not None and found is not ANOTHER else (self.follow(at.of(*selectors), node.args[1]) if len(node.args) > 1 else None)
            if name in ("values", "copy") and not node.args:
                return self.follow(at.of(*selectors), node.func.value)
            if name == "items" and not node.args and len(selectors) > 1 and selectors[1] == 1:
                return self.follow(at.of(selectors[0], *selectors[2:]), node.func.value)
            if name in ("parse_args", "parse_known_args") and selectors:
                return self._parsed(at, name)
        found = self._entry(at, node, name) if selectors and isinstance(selectors[0], str) else self._returned(at, node)
        if found is None and selectors and name in _LOADS and not isinstance(selectors[0], Invoked) and self._defined(at.frame, node.func) is None:
            return Source(at.frame.filename, node, at.frame.name, at.crossed)
        return found

    def _parsed(self, at: At, name: str) -> Source | None:
        selectors = at.selectors[1:] if name == "parse_known_args" and at.selectors[0] == 0 else at.selectors
        tree = source.tree_of(at.frame.filename)
        option = option_default(tree, selectors[0]) if selectors and isinstance(selectors[0], str) else None
        return self.follow(at.inside(Frame(at.frame.filename, tree, "", None, None), *selectors[1:]), option) if option is not None and tree is not None else None

    def _entry(self, at: At, node: ast.Call, name: str) -> Source | None:
        """An attribute or entry of what a call returns: its keyword, or what the called function or class makes of it."""
        keyword = next((k.value for k in node.keywords if k.arg == at.selectors[0]), None)
        if keyword is not None:
            return self.follow(at.of(*at.selectors[1:]), keyword)
        for given in node.keywords:
            found = self.follow(at.of(*at.selectors), given.value) if given.arg is None else None
            if found is not None and found is not ANOTHER:
                return found
        if name == "_replace" and isinstance(node.func, ast.Attribute):
            return self.follow(at.of(*at.selectors), node.func.value)
        if name in _SAME_ENTRIES and node.args:
            return self.follow(at.of(*at.selectors), node.args[0])
        return self._returned(at, node)

    def _returned(self, at: At, node: ast.Call) -> Source | None:
        defined = self._defined(at.frame, node.func)
        if defined is None:
            return self._of_named_tuple(at, node) or self._by_method(at, node)
        filename, definition = defined
        if isinstance(definition, ast.ClassDef):
            return self._of_object(at, node, filename, definition)
        returns = [statement.value for statement in returns_of(definition)]
        if not returns or any(value is None for value in returns):
            return None
        inside = at.inside(Frame(filename, definition, definition.name, node, at.frame, ""), *at.selectors)
        return self._one([self.follow(inside, value) for value in returns if value is not None])

    def _by_method(self, at: At, node: ast.Call) -> Source | None:
        """`vocabulary.encode(text)`, `self.encode(text)`: what the method returns, of the class whose object that is."""
        if isinstance(node.func, ast.Name):  # `vocabulary(text)`: an object that can be called
            return self.follow(at.of(Invoked.of(node, at.frame), *at.selectors), node.func)
        if not isinstance(node.func, ast.Attribute):
            return None
        receiver, frame = node.func.value, at.frame
        owner = self._defined(frame, receiver) if isinstance(receiver, ast.Name) else None
        if owner is not None and isinstance(owner[1], ast.ClassDef):
            return self._by_constructor(at, node, owner[0], owner[1])
        if frame.arguments == "self" and isinstance(receiver, ast.Name) and receiver.id == first_parameter(frame.scope):
            kind = self._kind(frame)
            return self._of_method(at, Invoked.of(node, frame), *kind, frame.made) if kind is not None else None
        return self.follow(at.of(Invoked.of(node, frame), *at.selectors), receiver)

    def _by_constructor(self, at: At, node: ast.Call, filename: str, owner: ast.ClassDef) -> Source | None:
        """`Config.from_dict(options)`: a class method with one `return cls(…)`."""
        found = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == node.func.attr]  # type: ignore[attr-defined]
        decorators = [getattr(decorator, "id", "") for item in found for decorator in item.decorator_list]
        returns = list(returns_of(found[0])) if len(found) == 1 and decorators == ["classmethod"] and found[0].args.args else []
        made = returns[0].value if len(returns) == 1 else None
        if not isinstance(made, ast.Call) or getattr(made.func, "id", "") not in (found[0].args.args[0].arg, owner.name) or not at.selectors or not isinstance(at.selectors[0], str):
            return None
        inside = at.inside(Frame(filename, found[0], f"{owner.name}.{found[0].name}", node, at.frame, "self"), *at.selectors)
        given = [self.follow(inside.of(*at.selectors[1:]), k.value) if k.arg is not None else self.follow(inside, k.value) for k in made.keywords if k.arg in (at.selectors[0], None)]
        there = [one for one in given if one is not None and one is not ANOTHER]
        return there[0] if len(there) == 1 else self._of_object(inside, made, filename, owner) if not there else None

    def _of_method(self, at: At, asked: str, filename: str, owner: ast.ClassDef, made: tuple[ast.Call, Frame] | None) -> Source | None:
        """What a method of an object returns that was called, or a property that was asked for."""
        name, called = (asked.method, asked) if isinstance(asked, Invoked) else (asked, None)
        found: list[ast.FunctionDef] = []
        for home, kind in lineage(filename, owner):
            own = [item for item in kind.body if isinstance(item, ast.FunctionDef) and item.name == name]
            if own and not found:
                filename, owner, found = home, kind, own
        around = {ast.unparse(decorator).split(".")[-1] for item in found for decorator in item.decorator_list}
        is_property = bool(around & {"property", "cached_property"})
        returns = list(returns_of(found[0])) if len(found) == 1 else []
        if len(returns) != 1 or returns[0].value is None or is_property is not (called is None) or not found[0].args.args and "staticmethod" not in around:
            return None
        if around - {"property", "cached_property", "staticmethod", "no_grad()", "inference_mode()"} or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(found[0])):
            return None  # what a decorator returns is anybody's guess
        word = "" if "staticmethod" in around else "self"
        inside = Frame(filename, found[0], f"{owner.name}.{name}", called.call if called is not None else None, called.frame if called is not None else None, word, made=made)
        way, value = at.inside(inside, *at.selectors), returns[0].value
        if is_property and not at.selectors and isinstance(value, ast.Attribute) and value.attr.strip("_") != name:
            way = way._replace(crossed=(*at.crossed, Crossing(filename, value, inside.name, False)))  # `out_features`, which says it is `self.width`
        return self.follow(way, value)

    def _defined(self, frame: Frame, function: ast.AST) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        return definition_of(frame.filename, function)

    def _making(self, filename: str, owner: ast.ClassDef, made: tuple[ast.Call, Frame] | None) -> typing.Iterator[tuple[str, ast.ClassDef, tuple[ast.Call, Frame] | None]]:
        """A class and its bases, each with the call that ran its `__init__`: the object's own, or `super().__init__(…)`."""
        for home, kind in lineage(filename, owner):
            yield home, kind, made
            own = method_of(kind, "__init__")
            handed = base_call(own) if own is not None else None
            if own is not None and handed is not None:
                call, outer = made or (None, None)
                made = (handed, Frame(home, own, f"{kind.name}.__init__", call, outer, "self", made))
            elif own is not None:
                made = None

    def _of_object(self, at: At, call: ast.Call, filename: str, owner: ast.ClassDef) -> Source | None:
        """An attribute of an object that this call made: a field's value or default, or what `__init__` stored."""
        name, rest = at.selectors[0] if at.selectors else None, at.selectors[1:]
        names = list(dict.fromkeys(field for _, kind in reversed(lineage(filename, owner)) for field in fields_of(kind)))  # a base's fields come first
        if type(name) is int and is_tuple(owner) and name < len(names):  # `for state, action in steps`
            name = names[name]
        if not isinstance(name, str):
            return None
        returned = self._of_method(at.of(*rest), name, filename, owner, (call, at.frame))
        if returned is not None or isinstance(name, Invoked):
            return returned
        has_init = False
        for home, kind, made in self._making(filename, owner, (call, at.frame)):
            for method in (method_of(kind, "__init__"), method_of(kind, "__post_init__")):
                if method is None:
                    continue
                has_init = has_init or method.name == "__init__"
                runs, outer = made or (None, None)
                inside = Frame(home, method, f"{kind.name}.{method.name}", runs, outer, "self")
                found = [item for statement in ast.walk(method) for item in stored_in(statement, method.args.args[0].arg, name)]
                if found:
                    return self._one([self.follow(at.inside(inside, *where, *rest), value) for value, where in found])
        if not has_init and name in names:
            given = self._positional(at.of(*rest), call, names.index(name))
            if given is not None:
                return given
        return self._of_class(at.of(*rest), filename, owner, name)

    def _positional(self, at: At, call: ast.Call, place: int) -> Source | None:
        """The argument at a place of a call; out of `Step(*parts)`, too."""
        star = next((k for k, argument in enumerate(call.args) if isinstance(argument, ast.Starred)), len(call.args))
        if place < star:
            return self.follow(at, call.args[place])
        starred = call.args[star].value if star == len(call.args) - 1 else None  # type: ignore[attr-defined]
        return self.follow(at.of(place - star, *at.selectors), starred) if starred is not None else None

    def _of_named_tuple(self, at: At, call: ast.Call) -> Source | None:
        """For `Step = namedtuple("Step", ["state", "action"])`: the argument of `Step(…)` that is meant."""
        names = tuple_fields(at.frame.filename, call.func)
        name = at.selectors[0] if at.selectors else None
        place = names.index(name) if isinstance(name, str) and name in names else name
        if type(place) is not int or not 0 <= place < len(names):
            return None
        keyword = next((k.value for k in call.keywords if k.arg == names[place]), None)
        way = at.of(*at.selectors[1:])
        return self.follow(way, keyword) if keyword is not None else self._positional(way, call, place)


def _default(value: ast.AST) -> ast.AST:
    """`field(default=4)`, `field(default_factory=lambda: [4])`, `field(default_factory=Config)`; any other value as it is."""
    if not isinstance(value, ast.Call) or getattr(value.func, "id", getattr(value.func, "attr", "")) not in ("field", "Field"):
        return value
    given = next((k for k in value.keywords if k.arg in ("default", "default_factory")), None)
    if given is None:
        return value
    if given.arg == "default":
        return given.value
    return given.value.body if isinstance(given.value, ast.Lambda) else ast.Call(given.value, [], [])
