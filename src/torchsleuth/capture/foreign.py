"""What was given where a tensor is wanted: a tuple, None, a list, an array; what it holds, and which call handed it over."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import bindings, function_node, returns_of
from torchsleuth.capture.arguments import Call, Given
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.foreign_kinds import ATTRIBUTE, asked_of_no_tensor, described, kind_of, parts_of, plain_operand, shapes_of
from torchsleuth.capture.makers import module_made
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.trails import mark_of
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.errors import message_of
from torchsleuth.evidence_forward import Foreign, Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.operands import Gathering

_ARGUMENT = re.compile(r"argument '(\w+)' \(position (\d+)\) must be (Tensor|tuple of Tensors), not ([\w.]+)")
_ELEMENT = re.compile(r"expected Tensor as element (\d+) in argument \d+, but got ([\w.]+)")
_OPERATOR = re.compile(r"unsupported operand type\(s\) for \S+: '([\w.]+)' and '([\w.]+)'")
_COMBINATION = re.compile(r"received an invalid combination of arguments - got \((.*?)\), but expected", re.DOTALL)
_STEPS = 8


def foreign(failure: Failure, gathering: Gathering, origins: Origins) -> Foreign | None:
    return _Search(failure, gathering, origins).found()


class _Search:
    def __init__(self, failure: Failure, gathering: Gathering, origins: Origins) -> None:
        self._failure, self._origins = failure, origins
        self._program, self._inner = gathering.program_call, gathering.inner_call
        self._place = gathering._place

    def found(self) -> Foreign | None:
        given = self._given()
        if given is None or isinstance(given.value, torch.Tensor) and given.key != "tensors":
            return None
        kind, words = described(given.value) if given.value is not UNKNOWN else _by_name(given.key or "")
        entry, node = self._failure.program, given.node
        place = self._place(node, entry) if node is not None else None
        text = source.text_of(entry.code.co_filename, source.node_range(entry.code.co_filename, node)) if node is not None else ""
        found = Foreign(given.name, text, kind, words, place, parts_of(given.value), shapes_of(given.value))
        if node is None or entry.origin is not Origin.USER:
            return self._within_chain(found, given.value)
        return self._traced(found, entry, node, given.value)

    # -- the value ----------------------------------------------------------------------------------

    def _given(self) -> Given | None:
        """The argument that the message is about, with its live value and, where it is the program's, its expression."""
        message, error = message_of(self._failure.crash.error), self._failure.crash.error
        if isinstance(error, AttributeError):
            return self._asked(error) if asked_of_no_tensor(error) or ATTRIBUTE.search(message) and self._failure.inner.origin is Origin.TORCH else None
        said = _ARGUMENT.search(message)
        if said:
            return self._argument(said[1], int(said[2]) - 1, said[4], "tensors" if said[3] != "Tensor" else None)
        element = _ELEMENT.search(message)
        if element:
            return self._element(int(element[1]), element[2])
        sides = _OPERATOR.search(message)
        if sides and ({"Tensor", "Parameter"} & set(sides.groups())) and self._failure.is_direct and self._program is not None:
            odd = [dataclasses.replace(given, name="", key=kind) for given, kind in zip(self._program.given, sides.groups()) if kind not in ("Tensor", "Parameter")]
            return odd[0] if len(odd) == 1 and not isinstance(odd[0].value, torch.Tensor) else None
        plain = plain_operand(error, self._failure.program.node, self._failure.program.evaluator.value) if self._failure.is_direct else None
        if plain is not None:
            return Given("", *plain)
        got = _COMBINATION.search(message)
        if got:
            return self._combination(got[1], message)
        return None

    def _combination(self, got: str, message: str) -> Given | None:
        """`got (tuple, Parameter, …)`: the first that no signature takes for anything but a tensor."""
        kinds = [kind.strip() for kind in re.sub(r"\([^()]*\)", "", got).split(",")]
        signatures = [line.split(",") for line in re.findall(r"\* \(([^()]*)", message)]
        for position, kind in enumerate(kinds):
            wanted = {s[position].strip().split(" ")[0] for s in signatures if position < len(s)}
            if wanted == {"Tensor"} and kind in ("tuple", "list", "NoneType", "numpy.ndarray", "dict", "str"):
                return self._argument("input" if position == 0 else "", position, kind, None)
        return None

    def _argument(self, name: str, position: int, kind: str, key: str | None) -> Given | None:
        for call in (self._inner, self._program):
            if call is None:
                continue
            fitting = [given for given in call.given if given.value is not UNKNOWN and kind_of(given.value) == kind]
            placed = [given for given in fitting if call.given.index(given) == position]
            chosen = [given for given in fitting if given.name == name] or placed or (fitting if len(fitting) == 1 else [])
            if chosen:
                return self._as_the_program_says(dataclasses.replace(chosen[0], name=chosen[0].name or name, key=key), call)
        return None

    def _element(self, position: int, kind: str) -> Given | None:
        for call in (self._inner, self._program):
            for given in call.given if call is not None else ():
                values = given.value
                if isinstance(values, (list, tuple)) and len(values) > position and kind_of(values[position]) == kind:
                    own = self._as_the_program_says(given, call)  # type: ignore[arg-type]
                    written = isinstance(own.node, (ast.List, ast.Tuple)) and len(own.node.elts) == len(values) and not any(isinstance(e, ast.Starred) for e in own.node.elts)
                    return Given(f"{given.name or 'tensors'}[{position}]", own.node.elts[position], values[position]) if written else None  # type: ignore[union-attr]
        return None

    def _asked(self, error: AttributeError) -> Given | None:
        node = self._failure.program.node
        node = node.func if isinstance(node, ast.Call) else node
        if self._failure.is_direct:
            return Given("", node.value, error.obj) if isinstance(node, ast.Attribute) and node.attr == error.name else None
        for call in (self._inner, self._program):
            same = [given for given in call.given if given.value is error.obj] if call is not None else []
            alike = len({ast.unparse(given.node) for given in same if given.node is not None}) == 1  # `attend(x, x, x)`
            if same and (len(same) == 1 or alike) and not isinstance(error.obj, torch.Tensor):
                return self._as_the_program_says(same[0], call)  # type: ignore[arg-type]
        return None

    def _as_the_program_says(self, given: Given, call: Call) -> Given:
        """The same value in the program's own call, which has the expression for it."""
        if call is self._program or self._program is None:
            return given if call is self._program else dataclasses.replace(given, node=None)
        same = [own for own in self._program.given if own.value is given.value]
        if len(same) > 1:
            same = [own for own in same if own.name == given.name]
        return dataclasses.replace(given, node=same[0].node if len(same) == 1 else None)

    # -- where it came from ---------------------------------------------------------------------------

    def _traced(self, found: Foreign, entry: Entry, node: ast.AST, value: typing.Any) -> Foreign:
        """Through names and arguments of live frames to the expression that made it, and into the function that returned it."""
        definitions, part = self._origins.definitions, None
        if found.kind == "tensor":
            return found
        for _ in range(_STEPS):
            if not isinstance(node, ast.Name):
                break
            looped = self._batch_of(entry, node.id)
            if looped is not None:
                return dataclasses.replace(found, story="batch", maker="DataLoader", made=looped)
            part = _part_of(entry, node.id)
            step = definitions.step(entry, node)
            if step is None:
                return self._within_chain(found, value)
            entry, node = step
            if part is not None:
                break
        here = definitions.here(entry, node)
        made = here if node is not self._failure.program.node and here is not None and (found.place is None or here.place.span != found.place.span) else None
        found = dataclasses.replace(found, made=made)
        if isinstance(node, ast.Tuple) and len(node.elts) == 1 and found.kind == "tuple":
            return dataclasses.replace(found, story="comma", made=here)
        return self._called(found, entry, node, part) if isinstance(node, ast.Call) else found

    def _batch_of(self, entry: Entry, name: str) -> Made | None:
        """`for batch in loader`: the loop, where it goes over a DataLoader."""
        scope = function_node(entry.code)
        bound = [item for item in bindings(scope) if item[0] == name] if scope is not None else []
        if len(bound) != 1 or not bound[0][3].startswith("loop"):
            return None
        loader = bound[0][2]
        if isinstance(loader, ast.Call) and getattr(loader.func, "id", "") in ("enumerate", "tqdm") and loader.args:
            loader = loader.args[0]
        value = entry.evaluator.value(loader)
        is_loader = isinstance(value, torch.utils.data.DataLoader) or isinstance(loader, ast.Call) and operation_word(loader) == "DataLoader"
        return self._origins.definitions.here(entry, bound[0][2]) if is_loader else None

    def _called(self, found: Foreign, entry: Entry, node: ast.Call, part: int | None) -> Foreign:
        called, maker = entry.evaluator.value(node.func), ast.unparse(node.func)
        if called is UNKNOWN and isinstance(node.func, ast.Attribute):  # a method: of the object's class
            owner = entry.evaluator.value(node.func.value)
            called = inspect.getattr_static(type(owner), node.func.attr, UNKNOWN) if owner is not UNKNOWN else UNKNOWN
            called = getattr(called, "__func__", called)  # a static method
        if isinstance(called, torch.nn.Module) and origin_of(type(called).forward.__code__) is Origin.TORCH:
            return dataclasses.replace(found, maker=type(called).__name__, story="layer" if part is None else "")
        function = type(called).forward if isinstance(called, torch.nn.Module) else called
        if not isinstance(called, (types.FunctionType, types.MethodType, type)) and called is not UNKNOWN and function is called:
            function = getattr(type(called), "__call__", None)  # an object of the program's that can be called
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType) or origin_of(code) is not Origin.USER or hasattr(function, "__wrapped__") or code.co_flags & inspect.CO_GENERATOR:
            return dataclasses.replace(found, maker=maker)
        return self._returned(found, code, part)

    def _returned(self, found: Foreign, code: types.CodeType, part: int | None = None) -> Foreign:
        """What a function of the program's returns, and in which of the ways it can be no tensor."""
        scope, maker = function_node(code), getattr(code, "co_qualname", code.co_name).removeprefix("<locals>.")
        if not isinstance(scope, ast.FunctionDef):
            return dataclasses.replace(found, maker=maker)
        returns = [statement for statement in returns_of(scope) if statement.value is not None]
        if found.kind == "None" and part is None and not returns:
            place = _headline(code, scope)
            return dataclasses.replace(found, maker=maker, story="no return", layer_made=Made("def", place) if place is not None else None)
        ended = _left_without(code, scope) if found.kind == "None" and part is None else {}
        if ended:
            return dataclasses.replace(found, maker=maker, **ended)
        value = returns[0].value if len(returns) == 1 else None
        if part is not None:
            value = value.elts[part] if isinstance(value, ast.Tuple) and part < len(value.elts) and not any(isinstance(e, ast.Starred) for e in value.elts) else None
        value = _bound_once(scope, value)
        place = source.place_of_node(code, value, Known.INFERRED) if value is not None else None
        if place is None or not isinstance(value, ast.expr):
            return dataclasses.replace(found, maker=maker)
        story = "returns" if isinstance(value, ast.Tuple) and part is None else ""
        if isinstance(value, ast.Tuple) and len(value.elts) == 1:
            story = "comma"
        return dataclasses.replace(found, maker=maker, story=story, layer_made=Made(operation_word(value), place))

    def _within_chain(self, found: Foreign, value: typing.Any) -> Foreign:
        """In an `nn.Sequential` the layer before the one that refused it has returned it."""
        for entry in reversed([entry for entry in self._failure.entries if entry.origin is Origin.TORCH]):
            scope = locals_of(entry.frame)
            chain = scope.get("self")
            if entry.code.co_name == "forward" and isinstance(chain, torch.nn.Sequential) and scope.get("input") is value:
                layers = list(chain)
                position = next((k for k, layer in enumerate(layers) if layer is scope.get("module")), 0)
                if position > 0 and sum(layer is layers[position] for layer in layers) == 1:
                    before, after = layers[position - 1], layers[position]
                    if origin_of(type(before).forward.__code__) is Origin.USER:
                        return self._returned(found, type(before).forward.__code__)
                    return dataclasses.replace(found, maker=type(before).__name__, story="chain", layer_made=self._layer(before), taker=type(after).__name__, taker_made=self._layer(after))
        return found

    def _layer(self, module: torch.nn.Module) -> Made | None:
        for parameter in module.parameters(recurse=False):
            mark = mark_of(parameter)
            made = self._origins.of_parameter(mark) if mark is not None else None
            if made is not None:
                return made
        return module_made(self._failure, self._origins.definitions, module)


def _by_name(kind: str) -> tuple[str, str]:
    """The same for a value that is gone, by what the message calls it."""
    kind = {"NoneType": "None", "numpy.ndarray": "array"}.get(kind, kind)
    return (kind if kind in ("None", "array", "tuple", "list", "dict") else "object"), "None" if kind == "None" else "a numpy array" if kind == "array" else f"a {kind}"


def _left_without(code: types.CodeType, scope: ast.FunctionDef) -> dict[str, typing.Any]:
    """For a function that returns a value on some ways only: the one `return` without, or the function, whose end can be reached."""
    bare = [statement for statement in returns_of(scope) if statement.value is None or isinstance(statement.value, ast.Constant) and statement.value.value is None]
    falls = not isinstance(scope.body[-1], (ast.Return, ast.Raise)) and not (isinstance(scope.body[-1], ast.If) and scope.body[-1].orelse)
    if len(bare) + falls != 1:
        return {}
    place = source.place_of_node(code, bare[0], Known.INFERRED) if bare else _headline(code, scope)
    return {"story": "some return", "layer_made": Made("def", place)} if place is not None else {}


def _headline(code: types.CodeType, scope: ast.FunctionDef) -> typing.Any:
    """`def name(…)`: the function itself, by its first line."""
    line = source.text_of(code.co_filename, (scope.lineno, 0, scope.lineno, 10_000))
    return source.place(code, (scope.lineno, scope.col_offset, scope.lineno, len(line)), Known.INFERRED) if line else None


def _part_of(entry: Entry, name: str) -> int | None:
    """For `a, b = f()`: which of the results a name is."""
    scope = function_node(entry.code)
    found = [bound for bound in bindings(scope) if bound[0] == name] if scope is not None else []
    if len(found) != 1 or found[0][3] != "assign-part" or not isinstance(found[0][1], ast.Assign):
        return None
    targets = getattr(found[0][1].targets[0], "elts", [])
    names = [getattr(target, "id", "") for target in targets]
    return names.index(name) if names.count(name) == 1 and not any(isinstance(target, ast.Starred) for target in targets) else None


def _bound_once(scope: ast.AST, value: ast.AST | None) -> ast.AST | None:
    if isinstance(value, ast.Name):
        found = [bound for bound in bindings(scope) if bound[0] == value.id]
        return found[0][2] if len(found) == 1 and found[0][3] == "assign" else value
    return value
