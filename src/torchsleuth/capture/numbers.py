"""Where a number came from that a call was given: through parameters, defaults, loops and configurations to the
expression that made it.

By syntax, along the callers that were noted when the operation ran. The number itself is the check: a constant at the end
of the trail must be it, and an element of a list or a table is taken only where it alone can be it. Where the syntax leaves
two ways, or leads to another number, the trail ends before.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.capture.finished import Frame, frame_at
from torchsleuth.capture.imported import imported_bodies, module_named, module_tree
from torchsleuth.capture.returns import returns_of
from torchsleuth.capture.scopes import (
    Selector, argument_for, bound_to, class_level, class_of, comprehensions_around, constant_value, default_of, enclosing,
    first_parameter, is_arithmetic, is_class_name, key_of, loosened, option_default, parameter_of, position_in,
    positional_names, stored_in, stores_into,
)  # fmt: skip

_MOST_STEPS = 40
_SAME_ELEMENTS = frozenset({"list", "tuple", "reversed", "sorted", "iter", "set"})
# `replace(cfg, heads=7)`, `vars(args)`, `asdict(cfg)`, `dict(base, heads=7)`: entries not named in the call are the first argument's.
_SAME_ENTRIES = frozenset({"replace", "deepcopy", "copy", "vars", "asdict", "dict", "Namespace", "OmegaConf.create", "create", "MappingProxyType"})


class Source(typing.NamedTuple):
    """An expression that holds the number, and the calls it came through: `crossed` is the nearest caller's expression."""

    filename: str
    node: ast.AST
    function: str
    crossed: tuple[str, ast.AST, str] | None
    axis: int | None = None  # for `batch, length = x.shape`: which of the sizes
    refuted: bool = False  # every way on from here leads to another number


_ANOTHER = Source("", ast.Constant(None), "", None, refuted=True)  # the trail ended at a constant that is not the number


class At(typing.NamedTuple):
    """How far a trail has come: the frame, and what of the value at hand is meant (`.heads`, `[1]`, …)."""

    frame: Frame
    selectors: tuple[Selector, ...] = ()
    crossed: tuple[str, ast.AST, str] | None = None
    left: int = _MOST_STEPS

    def of(self, *selectors: Selector) -> At:
        return self._replace(selectors=selectors, left=self.left - 1)

    def inside(self, frame: Frame, *selectors: Selector) -> At:
        return At(frame, selectors, self.crossed, self.left - 1)

    def end(self, node: ast.AST) -> Source | None:
        return Source(self.frame.filename, node, self.frame.name, self.crossed) if not self.selectors else None


class Numbers:
    """Follows numbers. `value_of` evaluates an expression in a file, where it stands in a live frame."""

    def __init__(self, files: typing.Iterable[str], value_of: typing.Callable[[str, ast.AST], typing.Any]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._value_of = value_of

    def given(self, frame: Frame, arguments: typing.Iterable[ast.AST], number: int, tensors: bool) -> Source | None:
        """The one source of this number among the arguments of a call in `frame`; `tensors`: it was given tensors, too."""
        found: list[Source] = []
        arguments = list(arguments)
        # Beside `planes * 4`, which may be the number, only a constant that is it convinces.
        opaque = any(isinstance(argument, (ast.BinOp, ast.Call, ast.IfExp)) and constant_value(argument) is None for argument in arguments)
        for argument in arguments:
            if isinstance(argument, ast.Constant):
                if argument.value == number and type(argument.value) is int:
                    return None  # the call names the number itself
                continue
            if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred)):
                result = self.follow(frame, argument, number)
                if result is not None and is_class_name(result.node):
                    result = self._within(result, number)
                if result is not None and result.node is not argument and self._may_be(result, number, tensors):
                    found.append(result)
        return _only([result for result in found if not opaque or isinstance(result.node, ast.Constant)])

    def follow(self, frame: Frame, node: ast.AST, number: int) -> Source | None:
        found = _Trail(self._files, number).follow(At(frame), node)
        return found if found is not _ANOTHER else None

    def _may_be(self, found: Source, number: int, tensors: bool) -> bool:
        """An expression at which the trail ends is believed where it is live and the number, or else can be nothing but one."""
        if isinstance(found.node, ast.Constant):
            return True
        value = self._value_of(found.filename, found.node)
        if found.axis is not None and isinstance(value, tuple):
            return found.axis < len(value) and value[found.axis] == number
        if type(value) is int:
            return value == number
        return not tensors or is_arithmetic(found.node)

    def _within(self, found: Source, number: int) -> Source | None:
        """A configuration was handed over as a whole: the one entry in its making that is this number."""
        frame, call = frame_at(found.filename, found.node, found.function), found.node
        if frame is None or not isinstance(call, ast.Call):
            return None
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        ends = [_Trail(self._files, number).follow(At(frame, (None,) if isinstance(value, ast.Dict) else ()), value) for value in values]
        constants = [end for end in ends if end is not None and end is not _ANOTHER and isinstance(end.node, ast.Constant)]
        return _only(constants) if len(constants) == 1 else None


class _Trail:
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
            return at.end(node) if type(node.value) is int and node.value == self._number else _ANOTHER
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        found = method(at, node) if method is not None else None
        if found is not None and found is not _ANOTHER:
            return found
        end = at.end(node) if self._may_end(node) else None
        return found if end is None else end._replace(refuted=found is _ANOTHER)

    def _may_end(self, node: ast.AST) -> bool:
        """A container is no number, and arithmetic on constants is another one."""
        if isinstance(node, (ast.stmt, ast.Starred, ast.NamedExpr, ast.List, ast.Tuple, ast.Set, ast.Dict)):
            return False
        value = constant_value(node)
        return value is None or value == self._number

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
            return self.follow(at.of(*rest), node.elts[first]) if -len(node.elts) <= first < len(node.elts) else None
        return _only(
            [self.follow(at.of(*(loosened(at.selectors) if isinstance(element, ast.Starred) else rest)), element) for element in node.elts]
        )

    _tuple = _set = _list

    def _dict(self, at: At, node: ast.Dict) -> Source | None:
        if not at.selectors:
            return None
        key, rest = at.selectors[0], at.selectors[1:]
        if key is None:
            return _only([self.follow(at.of(*rest) if name is not None else at.of(*at.selectors), value) for name, value in zip(node.keys, node.values)])
        for name, value in reversed(list(zip(node.keys, node.values))):  # the last entry of a name counts
            if name is None:
                found = self.follow(at.of(*at.selectors), value)
                if found is not None and found is not _ANOTHER:
                    return found
            elif isinstance(name, ast.Constant) and name.value == key:
                return self.follow(at.of(*rest), value)
        return None

    def _ifexp(self, at: At, node: ast.IfExp) -> Source | None:
        return _only([self.follow(at.of(*at.selectors), branch) for branch in (node.body, node.orelse)])

    def _boolop(self, at: At, node: ast.BoolOp) -> Source | None:
        return _only([self.follow(at.of(*at.selectors), value) for value in node.values])

    def _binop(self, at: At, node: ast.BinOp) -> Source | None:
        if not at.selectors:
            return None
        if isinstance(node.op, ast.BitOr):  # of dictionaries: the right one counts
            found = self.follow(at.of(*at.selectors), node.right)
            return found if found is not None and found is not _ANOTHER else self.follow(at.of(*at.selectors), node.left)
        sides = (node.left, node.right) if isinstance(node.op, ast.Add) else (node.left,)
        return _only([self.follow(at.of(*loosened(at.selectors)), side) for side in sides])

    def _listcomp(self, at: At, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Source | None:
        return self.follow(at.of(*at.selectors[1:]), node.elt) if at.selectors else None

    _setcomp = _generatorexp = _listcomp

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
        ways = [self.follow(at.of(*where, *at.selectors), value) for value, where in bound_to(frame.scope, name)]
        is_parameter = parameter_of(frame.scope, name) is not None
        if is_parameter:
            ways.append(self._parameter(at, name))
        stores = stores_into(frame.scope, name, at.selectors) if at.selectors else ()
        stored = [self.follow(at.of(*rest), value) for value, rest in stores]
        if ways or is_parameter or any(way is not None and way is not _ANOTHER for way in stored):
            return _only([*ways, *stored])
        if not isinstance(frame.scope, ast.Module):
            outer = enclosing(frame.filename, frame.scope)  # a closure's variable, or a global
            if outer is None:
                return None
            around = frame_at(frame.filename, frame.scope) if not isinstance(outer, ast.Module) else None
            home = _running(frame, outer) or around or Frame(frame.filename, outer, "", None, None)
            return self._name(at.inside(home, *at.selectors), node)
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
        return _only([self._given(at, outer, call, name) for outer, call in calls])

    def _given(self, at: At, outer: Frame, call: ast.Call, name: str) -> Source | None:
        """What one call gives for a parameter: by name, by position, out of `*args` or `**kwargs`, or by default."""
        frame, of_self = at.frame, at.frame.arguments == "self"
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
            handed_on = isinstance(given, ast.Name) and parameter_of(outer.scope, given.id) is not None
            here = at.crossed or (None if handed_on else (outer.filename, given, outer.name))
            return self.follow(at.inside(outer, *at.selectors)._replace(crossed=here), given)
        found = None
        for keyword in call.keywords:
            if keyword.arg is None:
                way = self.follow(at.inside(outer, name, *at.selectors), keyword.value)
                found = found or (way if way is not _ANOTHER else None)
        default = default_of(frame.scope, name) if found is None and (certain or not any(isinstance(a, ast.Starred) for a in call.args)) else None
        return found or (self.follow(at.of(*at.selectors), default) if default is not None else None)

    def _uncalled(self, at: At, name: str) -> Source | None:
        """Nobody calls the function by its name: `KINDS[kind](**options)`, or a library calls it back.

        Then a keyword of the parameter's name that is the number is taken for what was given, where there is only one; else
        the default, where it is the number.
        """
        if at.selectors:
            return None
        for filename in dict.fromkeys((at.frame.filename, *self._files)):
            tree = source.tree_of(filename)
            given = [k.value for call in ast.walk(tree) if isinstance(call, ast.Call) for k in call.keywords if k.arg == name] if tree is not None else []
            same = [value for value in given if constant_value(value) == self._number]
            if len(same) == 1:
                around = frame_at(filename, same[0])
                return self.follow(at.inside(around), same[0]) if around is not None else None
        default = default_of(at.frame.scope, name)
        return self.follow(at.of(), default) if isinstance(default, ast.Constant) else None

    def _callers(self, frame: Frame) -> typing.Iterator[tuple[Frame, ast.Call]]:
        """Every call in the program's files that may be of this function: its name is all that tells."""
        called = getattr(frame.scope, "name", "")
        if called == "__init__":
            owner = class_of(frame.filename, frame.scope)
            called = owner.name if owner is not None else ""
        if not called or called == "forward":
            return
        for filename in dict.fromkeys((frame.filename, *self._files)):
            tree = source.tree_of(filename)
            for call in ast.walk(tree) if tree is not None else ():
                if isinstance(call, ast.Call) and (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) == called:
                    around = frame_at(filename, call)
                    if around is not None:
                        yield around, call

    # -- attributes and calls -----------------------------------------------------------------------

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
            if owner is not None and tree is not None:
                return self._of_class(at, frame.filename, tree, owner, node.attr)
        return self.follow(at.of(node.attr, *at.selectors), node.value)

    def _of_class(self, at: At, filename: str, tree: ast.Module, owner: ast.ClassDef, name: str) -> Source | None:
        value = class_level(owner, name)
        return self.follow(at.inside(Frame(filename, tree, owner.name, None, None), *at.selectors), value) if value is not None else None

    def _of_self(self, at: At, name: str) -> Source | None:
        """`self.width`: the one assignment in the class; in `__init__` itself its caller is known, elsewhere not."""
        frame, tree = at.frame, source.tree_of(at.frame.filename)
        owner = class_of(frame.filename, frame.scope)
        if owner is None or tree is None:
            return None
        found = []
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or not method.args.args:
                continue
            home = frame if method is frame.scope else Frame(frame.filename, method, f"{owner.name}.{method.name}", None, None, "self")
            for statement in ast.walk(method):
                found += [(home, value, where) for value, where in stored_in(statement, method.args.args[0].arg, name)]
        if not found:
            return self._of_class(at, frame.filename, tree, owner, name)
        return _only([self.follow(at.inside(home, *where, *at.selectors), value) for home, value, where in found])

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
        if isinstance(node.func, ast.Attribute):
            if name in ("get", "pop") and node.args and isinstance(node.args[0], ast.Constant):
                found = self.follow(at.of(node.args[0].value, *selectors), node.func.value)
                return found if found is not None and found is not _ANOTHER else (self.follow(at.of(*selectors), node.args[1]) if len(node.args) > 1 else None)
            if name in ("values", "copy") and not node.args:
                return self.follow(at.of(*selectors), node.func.value)
            if name == "items" and not node.args and len(selectors) > 1 and selectors[1] == 1:
                return self.follow(at.of(selectors[0], *selectors[2:]), node.func.value)
            if name in ("parse_args", "parse_known_args") and selectors:
                return self._parsed(at, name)
        if selectors and isinstance(selectors[0], str):
            return self._entry(at, node, name)
        return self._returned(at, node)

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
            if found is not None and found is not _ANOTHER:
                return found
        if name == "_replace" and isinstance(node.func, ast.Attribute):
            return self.follow(at.of(*at.selectors), node.func.value)
        if name in _SAME_ENTRIES and node.args:
            return self.follow(at.of(*at.selectors), node.args[0])
        return self._returned(at, node)

    def _returned(self, at: At, node: ast.Call) -> Source | None:
        defined = self._defined(at.frame, node.func)
        if defined is None:
            return None
        filename, definition = defined
        if isinstance(definition, ast.ClassDef):
            return self._of_object(at, node, filename, definition)
        returns = list(returns_of(definition))
        if len(returns) != 1 or returns[0].value is None:
            return None
        return self.follow(at.inside(Frame(filename, definition, definition.name, node, at.frame, ""), *at.selectors), returns[0].value)

    def _defined(self, frame: Frame, function: ast.AST) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        """The one definition that a called name stands for, in this file or the one it was imported from."""
        if not isinstance(function, ast.Name):
            return None
        tree = source.tree_of(frame.filename)
        for filename, body in (*([(frame.filename, tree.body)] if tree is not None else ()), *imported_bodies(tree, function.id)):
            found = [item for item in body if isinstance(item, (ast.ClassDef, ast.FunctionDef)) and item.name == function.id]
            if found:
                return (filename, found[0]) if len(found) == 1 else None
        return None

    def _of_object(self, at: At, call: ast.Call, filename: str, owner: ast.ClassDef) -> Source | None:
        """An attribute of an object that this call made: a field's value or default, or what `__init__` stored."""
        if not at.selectors or not isinstance(at.selectors[0], str):
            return None
        name, rest = at.selectors[0], at.selectors[1:]
        tree = source.tree_of(filename)
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__post_init__") and method.args.args:
                inside = Frame(filename, method, f"{owner.name}.{method.name}", call, at.frame, "self")
                found = [item for statement in ast.walk(method) for item in stored_in(statement, method.args.args[0].arg, name)]
                if found or method.name == "__init__":
                    return _only([self.follow(at.inside(inside, *where, *rest), value) for value, where in found])
        fields = [item.target.id for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
        if name in fields and fields.index(name) < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
            plain = all(getattr(base, "id", getattr(base, "attr", "")) in ("NamedTuple", "object") for base in owner.bases)
            return self.follow(at.of(*rest), call.args[fields.index(name)]) if plain else None  # a base's fields come first
        value = class_level(owner, name)
        if isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "field":
            value = _field_default(value)
        if value is None or tree is None:
            return None
        return self.follow(at.inside(Frame(filename, tree, owner.name, None, None), *rest), value)


def _field_default(call: ast.Call) -> ast.AST | None:
    """`field(default=4)`, `field(default_factory=lambda: [4])`, `field(default_factory=Config)`."""
    given = next((k for k in call.keywords if k.arg in ("default", "default_factory")), None)
    if given is None or given.arg == "default":
        return given.value if given is not None else None
    return given.value.body if isinstance(given.value, ast.Lambda) else ast.Call(given.value, [], [])


def _only(found: list[Source | None]) -> Source | None:
    """The one that ends in the number itself, or the only one there is that no constant refutes."""
    there = [result for result in found if result is not None and result is not _ANOTHER]
    if not there:
        return _ANOTHER if found and all(result is _ANOTHER for result in found) else None
    sure = [result for result in there if isinstance(result.node, ast.Constant)]
    there = sure or [result for result in there if not result.refuted] or there
    return there[0] if len({(result.filename, id(result.node)) for result in there}) == 1 else None


def _running(frame: Frame, scope: ast.AST) -> Frame | None:
    outer = frame.outer
    while outer is not None and outer.scope is not scope:
        outer = outer.outer
    return outer
