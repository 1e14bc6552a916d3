"""Where a number came from that a finished call was given: through parameters, defaults, loops and configurations to the
expression that made it.

By syntax, along the callers that were noted when the operation ran. The number itself is the check: a constant at the end
of the trail must be it, and an element of a list or a table is taken only where it alone can be it. Where the syntax leaves
two ways, or leads to another number, the trail ends before.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
import typing

from torchsleuth import source
from torchsleuth.capture.bindings import function_node
from torchsleuth.capture.returns import returns_of
from torchsleuth.origin import Origin, origin_of_file

_MOST_STEPS = 40
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SAME_ELEMENTS = frozenset({"list", "tuple", "reversed", "sorted", "iter", "set"})

Selector = str | int | None  # an attribute or key, a position, or None for "some element"


class Frame(typing.NamedTuple):
    """A call that is over: its code, and the call expression of the one that made it."""

    filename: str
    scope: ast.AST  # the function's definition, or the module
    name: str
    call: ast.Call | None  # the call that ran it, in `outer`
    outer: Frame | None
    arguments: str = ""  # how the call's arguments lie: "" plain, "self" for the first parameter left out


class Source(typing.NamedTuple):
    """An expression that holds the number, and the calls it came through: `crossed` is the nearest caller's expression."""

    filename: str
    node: ast.AST
    function: str
    crossed: tuple[str, ast.AST, str] | None


def frames_of(stack: typing.Sequence[tuple[types.CodeType, int]]) -> Frame | None:
    """From the program's frames as they were noted, innermost first."""
    outer: Frame | None = None
    inside: tuple[types.CodeType, int] | None = None
    for code, lasti in reversed(stack):
        scope = function_node(code)
        if scope is None and code.co_name.startswith("<") and inside is not None and outer is not None:
            inside = (code, lasti)  # a comprehension's own frame (up to Python 3.11): its names lie in the function's
            continue
        if scope is None:
            return None
        call = node_in(*inside) if inside is not None else None
        call = call if isinstance(call, ast.Call) else None
        known = outer if call is not None else None
        outer = Frame(code.co_filename, scope, getattr(code, "co_qualname", code.co_name), call, known, _binding_of(code, scope))
        inside = (code, lasti)
    return outer


def frame_at(filename: str, node: ast.AST, name: str = "") -> Frame | None:
    """The function around an expression, where nobody has noted who called it."""
    tree = source.tree_of(filename)
    if tree is None:
        return None
    scope: ast.AST = tree
    for candidate in ast.walk(tree):
        if isinstance(candidate, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(inner is node for inner in ast.walk(candidate)):
            scope = candidate  # the walk goes outside in
    word = "self" if isinstance(scope, ast.FunctionDef) and [a.arg for a in scope.args.args][:1] in (["self"], ["cls"]) else ""
    return Frame(filename, scope, name or getattr(scope, "name", ""), None, None, word)


def node_in(code: types.CodeType, lasti: int) -> ast.AST | None:
    where = source.instruction_range(code, lasti)
    node = source.expression_at(code.co_filename, where) if where is not None else None
    while isinstance(node, (ast.Expr, ast.Await)):
        node = node.value
    return node


def _binding_of(code: types.CodeType, scope: ast.AST) -> str:
    first = code.co_varnames[0] if code.co_argcount else ""
    return "self" if first in ("self", "cls") and not isinstance(scope, ast.Module) else ""


class Numbers:
    """Follows one number at a time. `value_of` evaluates an expression in a file, where it stands in a live frame."""

    def __init__(self, files: typing.Iterable[str], value_of: typing.Callable[[str, ast.AST], typing.Any]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._value_of = value_of

    def given(self, frame: Frame, arguments: typing.Iterable[ast.AST], number: int, tensors: bool) -> Source | None:
        """The one source of this number among the arguments of a call in `frame`; `tensors`: it was given tensors, too."""
        found: list[Source] = []
        for argument in arguments:
            if isinstance(argument, ast.Constant):
                if argument.value == number and type(argument.value) is int:
                    return None  # the call names the number itself
                continue
            if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred)):
                result = self.follow(frame, argument, (), number)
                if result is not None and result.node is not argument and self._may_be(result, number, tensors):
                    found.append(result)
        sure = [result for result in found if isinstance(result.node, ast.Constant)] or found
        return sure[0] if len({(result.filename, id(result.node)) for result in sure}) == 1 else None

    def _may_be(self, found: Source, number: int, tensors: bool) -> bool:
        """An expression at which the trail ends is believed where it is live and the number, or else can be nothing but one."""
        if isinstance(found.node, ast.Constant):
            return True
        value = self._value_of(found.filename, found.node)
        if type(value) is int:
            return value == number
        return not tensors or _is_arithmetic(found.node)

    def follow(self, frame: Frame, node: ast.AST, selectors: tuple[Selector, ...], number: int) -> Source | None:
        return self._follow(frame, node, selectors, number, None, _MOST_STEPS)

    # -- by syntax --------------------------------------------------------------------------------

    def _follow(
        self, frame: Frame, node: ast.AST, selectors: tuple[Selector, ...], number: int, crossed: tuple[str, ast.AST, str] | None, left: int
    ) -> Source | None:
        """None where the trail contradicts itself; an expression that cannot be followed further is an end."""
        if left <= 0:
            return None
        go = functools.partial(self._follow, number=number, left=left - 1)
        end = Source(frame.filename, node, frame.name, crossed) if not selectors else None
        if isinstance(node, ast.Constant):
            return end if type(node.value) is int and node.value == number else None
        if isinstance(node, ast.Name):
            return self._name(frame, node, selectors, number, crossed, left) or end
        if isinstance(node, ast.Attribute):
            return self._attribute(frame, node, selectors, number, crossed, left) or end
        if isinstance(node, ast.Subscript):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
                return end
            return go(frame, node.value, (*_key_of(node.slice), *selectors) if not isinstance(node.slice, ast.Slice) else _loosened(selectors), crossed=crossed) or end
        if isinstance(node, (ast.Starred, ast.NamedExpr)):
            return go(frame, node.value, selectors, crossed=crossed)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._element(frame, list(node.elts), selectors, number, crossed, left)
        if isinstance(node, ast.Dict):
            if not selectors:
                return None
            pairs = [value for key, value in zip(node.keys, node.values) if selectors[0] is None or isinstance(key, ast.Constant) and key.value == selectors[0]]
            return self._only([go(frame, value, selectors[1:], crossed=crossed) for value in pairs])
        if isinstance(node, ast.IfExp):
            return self._only([go(frame, branch, selectors, crossed=crossed) for branch in (node.body, node.orelse)]) or end
        if isinstance(node, ast.BinOp) and selectors:
            sides = (node.left, node.right) if isinstance(node.op, ast.Add) else (node.left,)
            return self._only([go(frame, side, _loosened(selectors), crossed=crossed) for side in sides])
        if isinstance(node, _COMPREHENSIONS) and not isinstance(node, ast.DictComp) and selectors:
            return go(frame, node.elt, selectors[1:], crossed=crossed)
        if isinstance(node, ast.Call):
            return self._call(frame, node, selectors, number, crossed, left) or end
        return end

    def _element(self, frame, elements: list[ast.expr], selectors, number, crossed, left) -> Source | None:
        if not selectors:
            return None
        first, rest = selectors[0], selectors[1:]
        starred = any(isinstance(element, ast.Starred) for element in elements)
        if type(first) is int and not starred:
            if not -len(elements) <= first < len(elements):
                return None
            return self._follow(frame, elements[first], rest, number, crossed, left - 1)
        found = []
        for element in elements:
            inner = selectors if isinstance(element, ast.Starred) else rest
            found.append(self._follow(frame, element, _loosened(inner) if isinstance(element, ast.Starred) else inner, number, crossed, left - 1))
        return self._only(found)

    @staticmethod
    def _only(found: list[Source | None]) -> Source | None:
        """The one that ends in the number itself, or the only one there is."""
        there = [result for result in found if result is not None]
        sure = [result for result in there if isinstance(result.node, ast.Constant)]
        there = sure or there
        return there[0] if len({(result.filename, id(result.node)) for result in there}) == 1 else None

    # -- names ------------------------------------------------------------------------------------

    def _name(self, frame: Frame, node: ast.Name, selectors, number, crossed, left) -> Source | None:
        name = node.id
        for comprehension in _around(frame.scope, node):
            for generator in comprehension.generators:
                where = _position(generator.target, name)
                if where is not None:
                    return self._follow(frame, generator.iter, (None, *where, *selectors), number, crossed, left - 1)
        bound = [(value, where) for value, where in _bound(frame.scope, name)]
        parameter = _parameter(frame.scope, name)
        if bound and parameter is None:
            return self._only([self._follow(frame, value, (*where, *selectors), number, crossed, left - 1) for value, where in bound])
        if parameter is not None:
            return self._parameter(frame, name, selectors, number, crossed, left) if not bound else None
        if not isinstance(frame.scope, ast.Module):
            outer = _enclosing(frame.filename, frame.scope)  # a closure's variable, or a global
            if outer is not None:
                around = frame_at(frame.filename, frame.scope) if not isinstance(outer, ast.Module) else None
                known = self._running(frame, outer)
                return self._name(known or around or Frame(frame.filename, outer, "", None, None), node, selectors, number, crossed, left - 1)
            return None
        return self._imported(frame, name, selectors, number, crossed, left)

    @staticmethod
    def _running(frame: Frame, scope: ast.AST) -> Frame | None:
        outer = frame.outer
        while outer is not None and outer.scope is not scope:
            outer = outer.outer
        return outer

    def _imported(self, frame: Frame, name: str, selectors, number, crossed, left) -> Source | None:
        """`from config import WIDTH`."""
        for statement in ast.walk(frame.scope):
            if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        tree = self._module_tree(statement.module)
                        if tree is not None:
                            return self._name(Frame(*tree, "", None, None), ast.Name(alias.name, ast.Load()), selectors, number, crossed, left - 1)
        return None

    @staticmethod
    def _module_tree(name: str) -> tuple[str, ast.Module] | None:
        filename = getattr(sys.modules.get(name), "__file__", None)
        if not filename or origin_of_file(filename) is not Origin.USER:
            return None
        tree = source.tree_of(filename)
        return (filename, tree) if tree is not None else None

    def _parameter(self, frame: Frame, name: str, selectors, number, crossed, left) -> Source | None:
        calls = [(frame.outer, frame.call)] if frame.outer is not None and frame.call is not None else None
        if calls is None:
            calls = list(self._callers(frame))
        found = []
        for outer, call in calls:
            given, certain = _argument(call, frame, name)
            if given is not None:
                here = crossed or (outer.filename, given, outer.name)
                found.append(self._follow(outer, given, selectors, number, here, left - 1))
            elif certain:
                default = _default(frame.scope, name)
                found.append(self._follow(frame, default, selectors, number, crossed, left - 1) if default is not None else None)
        return self._only(found)

    def _callers(self, frame: Frame) -> typing.Iterator[tuple[Frame, ast.Call]]:
        """Every call in the program's files that may be of this function: its name is all that tells."""
        called = getattr(frame.scope, "name", "")
        if called == "__init__":
            tree = source.tree_of(frame.filename)
            owner = next((c for c in ast.walk(tree) if isinstance(c, ast.ClassDef) and frame.scope in c.body), None) if tree is not None else None
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

    def _attribute(self, frame: Frame, node: ast.Attribute, selectors, number, crossed, left) -> Source | None:
        if isinstance(node.value, ast.Name):
            if frame.arguments == "self" and node.value.id == _first(frame.scope):
                return self._of_self(frame, node.attr, selectors, number, crossed, left)
            module = self._module_named(frame, node.value.id)
            if module is not None:
                return self._name(Frame(*module, "", None, None), ast.Name(node.attr, ast.Load()), selectors, number, crossed, left - 1)
            tree = source.tree_of(frame.filename)
            owner = next((c for c in getattr(tree, "body", ()) if isinstance(c, ast.ClassDef) and c.name == node.value.id), None)
            if owner is not None:
                value = _class_level(owner, node.attr)
                home = Frame(frame.filename, tree, owner.name, None, None)
                return self._follow(home, value, selectors, number, crossed, left - 1) if value is not None else None
        return self._follow(frame, node.value, (node.attr, *selectors), number, crossed, left - 1)

    def _module_named(self, frame: Frame, name: str) -> tuple[str, ast.Module] | None:
        tree = source.tree_of(frame.filename)
        for statement in ast.walk(tree) if tree is not None else ():
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return self._module_tree(alias.name)
            elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return self._module_tree(f"{statement.module}.{alias.name}")
        return None

    def _of_self(self, frame: Frame, name: str, selectors, number, crossed, left) -> Source | None:
        """`self.width`: the one assignment in the class; in `__init__` itself its caller is known, elsewhere not."""
        tree = source.tree_of(frame.filename)
        owner = next((c for c in ast.walk(tree) if isinstance(c, ast.ClassDef) and frame.scope in c.body), None) if tree is not None else None
        if owner is None:
            return None
        found = []
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or not method.args.args:
                continue
            for statement in ast.walk(method):
                for value, where in _stored(statement, method.args.args[0].arg, name):
                    same = method is frame.scope
                    home = frame if same else Frame(frame.filename, method, f"{owner.name}.{method.name}", None, None, "self")
                    found.append((home, value, where))
        if not found:
            value = _class_level(owner, name)
            home = Frame(frame.filename, tree, owner.name, None, None)
            return self._follow(home, value, selectors, number, crossed, left - 1) if value is not None else None
        return self._only([self._follow(home, value, (*where, *selectors), number, crossed, left - 1) for home, value, where in found])

    def _call(self, frame: Frame, node: ast.Call, selectors, number, crossed, left) -> Source | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        go = functools.partial(self._follow, number=number, crossed=crossed, left=left - 1)
        if isinstance(node.func, ast.Name) and selectors:
            if name in _SAME_ELEMENTS and len(node.args) == 1:
                return go(frame, node.args[0], _loosened(selectors) if name in ("reversed", "sorted", "set") else selectors)
            if name == "zip" and len(selectors) > 1 and type(selectors[1]) is int and selectors[1] < len(node.args):
                return go(frame, node.args[selectors[1]], (selectors[0], *selectors[2:]))
            if name == "enumerate" and len(selectors) > 1 and selectors[1] == 1:
                return go(frame, node.args[0], (selectors[0], *selectors[2:]))
        if isinstance(node.func, ast.Attribute):
            if name in ("get", "pop") and node.args and isinstance(node.args[0], ast.Constant):
                found = go(frame, node.func.value, (node.args[0].value, *selectors))
                return found or (go(frame, node.args[1], selectors) if len(node.args) > 1 else None)
            if name in ("values", "copy") and not node.args:
                return go(frame, node.func.value, selectors)
            if name == "items" and not node.args and len(selectors) > 1 and selectors[1] == 1:
                return go(frame, node.func.value, (selectors[0], *selectors[2:]))
            if name == "parse_args" and selectors and isinstance(selectors[0], str):
                option = _option(source.tree_of(frame.filename), selectors[0])
                return go(Frame(frame.filename, source.tree_of(frame.filename), "", None, None), option, selectors[1:]) if option is not None else None  # type: ignore[arg-type]
        if selectors and isinstance(selectors[0], str):
            keyword = next((k.value for k in node.keywords if k.arg == selectors[0]), None)
            if keyword is not None:
                return go(frame, keyword, selectors[1:])
        defined = self._defined(frame, node.func)
        if defined is None:
            return None
        filename, definition = defined
        if isinstance(definition, ast.ClassDef):
            return self._of_object(frame, node, filename, definition, selectors, number, crossed, left)
        returns = list(returns_of(definition))
        if len(returns) != 1 or returns[0].value is None:
            return None
        inside = Frame(filename, definition, definition.name, node, frame, "")
        return self._follow(inside, returns[0].value, selectors, number, crossed, left - 1)

    def _defined(self, frame: Frame, function: ast.AST) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        """The one definition that a called name stands for, in this file or the one it was imported from."""
        if not isinstance(function, ast.Name):
            return None
        tree = source.tree_of(frame.filename)
        for filename, body in (*([(frame.filename, tree.body)] if tree is not None else ()), *self._imports(tree, function.id)):
            found = [item for item in body if isinstance(item, (ast.ClassDef, ast.FunctionDef)) and item.name == function.id]
            if found:
                return (filename, found[0]) if len(found) == 1 else None
        return None

    def _imports(self, tree: ast.Module | None, name: str) -> typing.Iterator[tuple[str, list[ast.stmt]]]:
        for statement in ast.walk(tree) if tree is not None else ():
            if isinstance(statement, ast.ImportFrom) and statement.module and any(alias.name == name and not alias.asname for alias in statement.names):
                module = self._module_tree(statement.module)
                if module is not None:
                    yield module[0], module[1].body

    def _of_object(self, frame: Frame, call: ast.Call, filename: str, owner: ast.ClassDef, selectors, number, crossed, left) -> Source | None:
        """An attribute of an object that this call made: a field's value or default, or what `__init__` stored."""
        if not selectors or not isinstance(selectors[0], str):
            return None
        name, rest = selectors[0], selectors[1:]
        tree = source.tree_of(filename)
        init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        if init is not None:
            inside = Frame(filename, init, f"{owner.name}.__init__", call, frame, "self")
            found = [(value, where) for statement in ast.walk(init) for value, where in _stored(statement, init.args.args[0].arg, name)]
            return self._only([self._follow(inside, value, (*where, *rest), number, crossed, left - 1) for value, where in found])
        fields = [item.target.id for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
        if name in fields and fields.index(name) < len(call.args):
            return self._follow(frame, call.args[fields.index(name)], rest, number, crossed, left - 1)
        value = _class_level(owner, name)
        if isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "field":
            value = next((k.value for k in value.keywords if k.arg in ("default", "default_factory")), None)
            value = value.body if isinstance(value, ast.Lambda) else value
        return self._follow(Frame(filename, tree, owner.name, None, None), value, rest, number, crossed, left - 1) if value is not None and tree is not None else None


# -- syntax -------------------------------------------------------------------------------------------


def _is_arithmetic(node: ast.AST) -> bool:
    """`len(x)`, `x.size(1)`, `x.shape[0]`."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("len", "int", "size", "numel")
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"


def _key_of(node: ast.AST) -> tuple[Selector, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
        return (node.value,)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return (-node.operand.value,)
    return (None,)


def _loosened(selectors: tuple[Selector, ...]) -> tuple[Selector, ...]:
    """A slice, a reversal or a sum of lists moves positions: some element, then."""
    return (None, *selectors[1:]) if selectors and type(selectors[0]) is int else selectors


def _position(target: ast.AST, name: str) -> tuple[Selector, ...] | None:
    """Where a name stands in a target: () for the whole, (1,) for `a, name`."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, (ast.Tuple, ast.List)):
        if any(isinstance(element, ast.Starred) for element in target.elts):
            return None
        for position, element in enumerate(target.elts):
            inner = _position(element, name)
            if inner is not None:
                return (position, *inner)
    return None


def _around(scope: ast.AST, node: ast.AST) -> list[typing.Any]:
    """The comprehensions around an expression, innermost first."""
    return [c for c in ast.walk(scope) if isinstance(c, _COMPREHENSIONS) and any(inner is node for inner in ast.walk(c))][::-1]


@functools.lru_cache(maxsize=1024)
def _bound(scope: ast.AST, name: str) -> tuple[tuple[ast.AST, tuple[Selector, ...]], ...]:
    """What a name is bound to in a function: (expression, where in its value). An unknown kind of binding counts, too."""
    found: list[tuple[ast.AST, tuple[Selector, ...]]] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                continue
            targets: list[tuple[ast.AST, ast.AST, tuple[Selector, ...]]] = []
            if isinstance(child, ast.Assign):
                targets = [(target, child.value, ()) for target in child.targets]
            elif isinstance(child, (ast.AnnAssign, ast.NamedExpr)) and child.value is not None:
                targets = [(child.target, child.value, ())]
            elif isinstance(child, ast.AugAssign):
                targets = [(child.target, child.target, ("\0",))]  # counted: nowhere to be found
            elif isinstance(child, (ast.For, ast.AsyncFor)):
                targets = [(child.target, child.iter, (None,))]
            for target, value, first in targets:
                where = _position(target, name)
                if where is not None:
                    found.append((value, (*first, *where)))
            visit(child)

    visit(scope)
    return tuple(found)


def _parameter(scope: ast.AST, name: str) -> ast.arg | None:
    if not isinstance(scope, _FUNCTIONS):
        return None
    arguments = scope.args
    return next((a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg == name), None)


def _first(scope: ast.AST) -> str:
    return scope.args.args[0].arg if isinstance(scope, _FUNCTIONS) and scope.args.args else ""


def _argument(call: ast.Call, frame: Frame, name: str) -> tuple[ast.AST | None, bool]:
    """What a call gives for a parameter; and, for None, whether it surely gives nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value, True
    names = [a.arg for a in (*frame.scope.args.posonlyargs, *frame.scope.args.args)]  # type: ignore[attr-defined]
    names = names[1:] if frame.arguments == "self" else names
    if name in names:
        position = names.index(name)
        before = call.args[: position + 1]
        if any(isinstance(argument, ast.Starred) for argument in before):
            return None, False
        if position < len(call.args):
            return call.args[position], True
    return None, not any(keyword.arg is None for keyword in call.keywords) and not any(isinstance(a, ast.Starred) for a in call.args)


def _default(scope: ast.AST, name: str) -> ast.AST | None:
    arguments = scope.args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in positional][len(positional) - len(arguments.defaults) :], arguments.defaults))
    defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None})
    return defaults.get(name)


def _enclosing(filename: str, scope: ast.AST) -> ast.AST | None:
    """The function around a function, or the module."""
    tree = source.tree_of(filename)
    if tree is None or scope is tree:
        return None
    found: ast.AST = tree
    for candidate in ast.walk(tree):
        if isinstance(candidate, _FUNCTIONS) and candidate is not scope and any(inner is scope for inner in ast.walk(candidate)):
            found = candidate
    return found


def _stored(statement: ast.AST, owner: str, name: str) -> typing.Iterator[tuple[ast.AST, tuple[Selector, ...]]]:
    """`self.name = value`, alone or among several targets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) and statement.value else []
    for target in targets:
        whole = isinstance(target, ast.Attribute)
        parts = [target] if whole else target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        for position, part in enumerate(parts):
            if isinstance(part, ast.Attribute) and part.attr == name and getattr(part.value, "id", "") == owner:
                yield statement.value, () if whole else (position,)  # type: ignore[attr-defined, misc]


def _class_level(owner: ast.ClassDef, name: str) -> ast.AST | None:
    for item in owner.body:
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) and item.value else []
        if any(getattr(target, "id", "") == name for target in targets):
            return item.value  # type: ignore[attr-defined]
    return None


def _option(tree: ast.Module | None, name: str) -> ast.AST | None:
    """The default of `parser.add_argument("--name", default=…)`."""
    for call in ast.walk(tree) if tree is not None else ():
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            dest = next((k.value.value for k in call.keywords if k.arg == "dest" and isinstance(k.value, ast.Constant)), None)
            if dest == name or dest is None and any(flag.lstrip("-").replace("-", "_") == name for flag in flags):
                return next((k.value for k in call.keywords if k.arg == "default"), None)
    return None
