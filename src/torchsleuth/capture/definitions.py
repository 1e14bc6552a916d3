"""Where a variable of a live frame got its value, by syntax and the recorded lines: assignment, loop, argument, attribute.

Used for plain numbers, which no tensor log can follow, and for tensors where the log did not see them. Where more
than one assignment may be the one, the recorded lines decide; where they do not, the answer is None.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
import typing

import torch

from torchsleuth import env, source
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.attributes import attribute_definition, computed, counted
from torchsleuth.capture.contents import is_empty, put_into, taken_from
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.finished import Frame, frame_at, frames_of, node_in
from torchsleuth.capture.number_sources import Crossing, Source
from torchsleuth.capture.numbers import Numbers
from torchsleuth.capture.partials import filled
from torchsleuth.capture.reckoning import Agreed, constants_behind
from torchsleuth.capture.returns import returned
from torchsleuth.capture.scopes import SIZED, arguments_for, bound_to, constant_value, default_of, enclosing, parameter_of, size_asked, slice_lengths
from torchsleuth.capture.unlogged import operation_word, stand_in
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.probe.names import locals_of
from torchsleuth.record.ring import Kind

_DEPTH = 12
_MOST_EVENTS = 60_000

_QUEUES = ("queue", "_queue", "multiprocessing.queues", "torch.multiprocessing.queue", "multiprocessing.connection")
_PASSING = ("_wrapped_call_impl", "_call_impl", "inner", "wrapper")  # hand on their arguments

Bound = tuple[ast.AST, ast.AST, str]  # (statement or comprehension, expression the value came from, kind)


class Definitions:
    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def made(self, entry: Entry, node: ast.AST | None) -> Made | None:
        """Where the value of this expression, in this frame, came from: the nearest expression that is no mere name, and for
        an integer also the expression that set it, further out."""
        made = self._nearest(entry, node, _DEPTH)
        if node is None or made is not None and (made.given is not None or made.operation == "constant"):
            return made
        far = self._number_made(entry, node)
        if far is None or made is None:
            return made or far
        while far.given is not None:  # the calls on the way are alive, and stand in the traceback
            far = far.given
        return made if _same_place(made, far) else dataclasses.replace(made, given=far)

    def _nearest(self, entry: Entry, node: ast.AST | None, depth: int) -> Made | None:
        if node is None or depth <= 0:
            return None
        if isinstance(node, ast.Name):
            return self._of_name(entry, node, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(entry, node, depth)
        if isinstance(node, ast.Starred):
            return self._nearest(entry, node.value, depth - 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return self._here(entry.code, node, "constant")
        return self._here(entry.code, node, operation_word(node))

    def element_made(self, entry: Entry, node: ast.AST) -> Made | None:
        """Where the elements of a list came from: for one that began empty what was put into it, by the one expression that does so."""
        if isinstance(node, ast.Name):
            bound = self._binding(entry, node.id)
            code, begun = entry.code, bound[1] if bound is not None else None
        else:
            found = attribute_definition(entry.evaluator.value(node.value), node.attr) if isinstance(node, ast.Attribute) else None
            code, begun = found if found is not None else (entry.code, None)
        if begun is None or not is_empty(begun):
            return self.made(entry, node)
        put = put_into(code.co_filename, ast.unparse(node), function_node(entry.code) if isinstance(node, ast.Name) else None)
        if put is None:
            return None
        alive = next((e for e in reversed(self._failure.entries) if (scope := function_node(e.code)) is not None and any(n is put for n in ast.walk(scope))), None)
        there = self._nearest(alive, put, _DEPTH) if alive is not None else None
        return there or self._here(stand_in(code.co_filename), put, operation_word(put))

    def taken(self, entry: Entry, node: ast.AST, axis: int | None, size: int) -> Made | None:
        """For `q.get()`: the call of the program's that made what was put into the queue, and what gave it this size."""
        held = entry.evaluator.value(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        found = taken_from(node, self.numbers.files) if type(held).__module__ in _QUEUES else None
        if found is None:
            return None
        filename, call = found
        around = frame_at(filename, call)
        made = self._here(stand_in(filename, around.name if around is not None else ""), call, operation_word(call))
        if made is None or around is None or axis is None or any(constant_value(argument) == size for argument in arguments_for(call, axis)):
            return made
        return dataclasses.replace(made, given=self.source_made(self.numbers.given(around, arguments_for(call, axis), size, tensors=True)))

    def here(self, entry: Entry, node: ast.AST) -> Made | None:
        return self._here(entry.code, node, operation_word(node))

    def step(self, entry: Entry, node: ast.AST) -> tuple[Entry, ast.AST] | None:
        """One step back from a name: to the expression it was assigned from, here or in the caller."""
        if not isinstance(node, ast.Name):
            return None
        bound = self._binding(entry, node.id)
        if bound is not None:
            return entry, bound[1]
        if node.id in _parameters(entry.code):
            caller, given = self.argument_expression(entry, node.id)
            return (caller, given) if caller is not None and given is not None else None
        if self._is_of_outer(entry, node.id):
            return self.step(self.around(entry), node)
        if entry.code.co_name != "<module>" and node.id in entry.frame.f_globals:
            module = next((e for e in self._failure.entries if e.code.co_name == "<module>" and e.frame.f_globals is entry.frame.f_globals), None)
            return self.step(module, node) if module is not None and module is not entry else None
        return None

    def around(self, entry: Entry) -> Entry:
        """For the frame of a comprehension or generator the one of the function that it stands in."""
        outer = self._failure.entries[entry.position - 1] if entry.position else entry
        inside = entry.code.co_name.startswith("<") and entry.code.co_name != "<module>" and outer.code.co_filename == entry.code.co_filename
        return outer if inside else entry

    def _is_of_outer(self, entry: Entry, name: str) -> bool:
        """A variable that a comprehension uses and the function around it holds. Before Python 3.12 a comprehension has a frame of its own."""
        return name in entry.code.co_freevars and name in self.around(entry).code.co_cellvars

    def of_module(self, module: torch.nn.Module) -> tuple[types.CodeType, ast.AST] | None:
        """The constructor call of a module that a variable of the user's holds."""
        for entry in reversed(self._failure.entries):
            if entry.origin is not Origin.USER:
                continue
            for name, value in locals_of(entry.frame).items():
                if value is module and name != "self":
                    found = self.step(entry, ast.Name(name, ast.Load()))
                    if found is not None and isinstance(found[1], ast.Call) and (self._binding(entry, name) or ("", "", ""))[2] == "assign":
                        return found[0].code, found[1]
            for name, value in list(entry.frame.f_globals.items()):
                if value is module:
                    return self._global_node(entry, name)
        return None

    def _here(self, code: types.CodeType, node: ast.AST, word: str, known: Known = Known.INFERRED) -> Made | None:
        place = source.place_of_node(code, node, known)
        return Made(word, place) if place is not None else None

    def _of_name(self, entry: Entry, node: ast.Name, depth: int) -> Made | None:
        bound = self._binding(entry, node.id)
        if bound is not None:
            _, value, kind = bound
            if kind == "assign" and isinstance(value, (ast.Name, ast.Attribute)):
                return self._nearest(entry, value, depth - 1) or self._here(entry.code, value, "assignment")
            word = "loop" if kind.startswith("loop") else operation_word(value)
            return self._unseen(entry, node.id, bound) or self._here(entry.code, value, word)
        if node.id in _parameters(entry.code):
            return self._of_argument(entry, node.id, depth)
        if self._is_of_outer(entry, node.id):
            return self._of_name(self.around(entry), node, depth)
        if entry.code.co_name != "<module>" and node.id in entry.frame.f_globals:
            return self._of_global(entry, node.id)
        return None

    def _unseen(self, entry: Entry, name: str, bound: Bound) -> Made | None:
        """`X, y = load()`: the `torch.from_numpy(…)` that `load` returned for `X`."""
        statement, value, kind = bound
        if not isinstance(value, ast.Call) or kind not in ("assign", "assign-part") or not isinstance(statement, ast.Assign):
            return None
        position, target = None, statement.targets[0]
        if kind == "assign-part":
            names = [getattr(element, "id", "") for element in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else []
            if names.count(name) != 1 or any(isinstance(element, ast.Starred) for element in target.elts):  # type: ignore[attr-defined]
                return None
            position = names.index(name)
        function = entry.evaluator.value(value.func)
        code = getattr(function, "__code__", None)
        found = returned(function, function_node(code), position) if isinstance(code, types.CodeType) else None
        return self._here(code, found, operation_word(found)) if found is not None else None  # type: ignore[arg-type]

    # -- bindings -------------------------------------------------------------------------------

    def _binding(self, entry: Entry, name: str) -> Bound | None:
        """The binding of a local name that was in force at the failure."""
        comprehension = _comprehension_binding(entry, name)
        if comprehension is not None:
            return comprehension
        scope = function_node(entry.code)
        if scope is None:
            return None
        found = [bound for bound in bindings(scope) if bound[0] == name]
        candidates = [(statement, value, kind) for _, statement, value, kind in found]
        if not candidates:
            return None
        if len(candidates) == 1 and name not in _parameters(entry.code):
            return candidates[0]
        line = self._latest_line(entry, {c[0].lineno for c in candidates}, entry.statement)
        chosen = [c for c in candidates if c[0].lineno == line]
        return chosen[-1] if line is not None and chosen else None

    def _latest_line(self, entry: Entry, lines: set[int], failing: ast.stmt | None) -> int | None:
        """Which of these lines ran last in the failing call of this function, by the recorded lines."""
        recording = self._failure.crash.recording
        if recording is None:
            return None
        skip_first = failing is not None and failing.lineno in lines  # the failing line itself has bound nothing yet
        for count, event in enumerate(recording.ring.newest_first()):
            if count > _MOST_EVENTS:
                return None
            if event.code is not entry.code:
                continue
            if event.kind is Kind.START:
                return None
            if event.kind is Kind.LINE and event.where in lines:
                if skip_first and event.where == failing.lineno:
                    skip_first = False
                    continue
                return event.where
        return None

    def _of_global(self, entry: Entry, name: str) -> Made | None:
        found = self._global_node(entry, name)
        return self._here(*found, operation_word(found[1])) if found is not None else None

    def _global_node(self, entry: Entry, name: str) -> tuple[types.CodeType, ast.AST] | None:
        """The one assignment of a global in the function's own file."""
        tree = source.tree_of(entry.code.co_filename)
        found = [bound for bound in bindings(tree) if bound[0] == name] if tree is not None else []
        if len(found) != 1 or found[0][3] != "assign":
            return None
        return stand_in(entry.code.co_filename), found[0][2]

    # -- arguments ------------------------------------------------------------------------------

    def _of_argument(self, entry: Entry, name: str, depth: int) -> Made | None:
        caller, node = self.argument_expression(entry, name)
        if caller is None or node is None:
            return None
        return self._nearest(caller, node, depth - 1) or self._here(caller.code, node, operation_word(node))

    def argument_expression(self, entry: Entry, name: str) -> tuple[Entry | None, ast.AST | None]:
        """The expression that a caller gave for a parameter, and the caller. Module calls pass through torch's frames."""
        caller = next((e for e in reversed(self._failure.entries[: entry.position]) if e.origin.is_program), None)
        if caller is None or not isinstance(caller.node, ast.Call):
            return None, None
        between = self._failure.entries[caller.position + 1 : entry.position]
        if not all(_passes_on(e.code) for e in between):
            return None, None
        names = list(_parameters(entry.code))
        if names and names[0] in ("self", "cls") and not _passes_self(caller):
            names = names[1:]
        call = caller.node
        for _ in range(4):  # a decorator's `f(*args, **kwargs)` hands on what it was given
            outer = next((e for e in reversed(self._failure.entries[: caller.position]) if e.origin.is_program), None)
            if outer is None or not isinstance(outer.node, ast.Call) or not _hands_on(call, caller.code):
                break
            if not all(_passes_on(e.code) for e in self._failure.entries[outer.position + 1 : caller.position]):
                return None, None
            caller, call = outer, outer.node
        for keyword in call.keywords:
            if keyword.arg == name:
                return caller, keyword.value
        if name in names and not any(isinstance(argument, ast.Starred) for argument in call.args):
            position = names.index(name)
            if position < len(call.args):
                return caller, call.args[position]
        scope = function_node(entry.code)
        default = default_of(scope, name) if scope is not None and parameter_of(scope, name) is not None else None
        held = entry.frame.f_locals.get(name)
        # A name of a device or a mode that the call leaves out. Numbers are followed on their own, further than to here.
        return (entry, default) if isinstance(default, ast.Constant) and isinstance(held, str) and held == default.value else (None, None)

    # -- numbers in calls that are over ------------------------------------------------------------

    def given_size(
        self, stack: typing.Sequence[tuple[types.CodeType, int]], size: int, axis: int | None, tensors: bool, read: typing.Container[str] | None = None
    ) -> Source | None:
        """For `torch.ones(4, n)` in a function that has returned: the expressions that gave `n`.

        `stack` are the callers as the log noted them; one frame alone where it did not. `read` as for `Numbers.given`.
        """
        call = node_in(*stack[0])
        frame = frames_of(stack)
        if not isinstance(call, (ast.Call, ast.Subscript)) or frame is None and len(stack) > 1:
            return None
        if frame is None or len(stack) == 1 and not isinstance(frame.scope, ast.Module):  # a comprehension's own frame has no syntax of a function
            frame = frame_at(stack[0][0].co_filename, call, frame.name if frame is not None else "")
        written = filled(frame, call) if frame is not None and isinstance(call, ast.Call) else call
        named = _named_size(frame, written, axis) if frame is not None and isinstance(written, ast.Call) and axis is not None else None
        if frame is not None and named is not None:
            return self._size_in(frame, named, size, tensors, read)
        arguments = arguments_for(written, axis) if isinstance(written, ast.Call) else slice_lengths(call)
        elsewhere = [argument for argument in arguments if written is not call and not any(argument is node for node in ast.walk(call))]
        if frame is None or any(constant_value(argument) == size for argument in arguments if argument not in elsewhere):
            return None  # the call names the number itself
        found = self.numbers.given(frame, arguments, size, tensors, read)
        if len(elsewhere) == len(arguments) == 1:  # a `functools.partial` gives it
            partial = Crossing(frame.filename, elsewhere[0], "", True)
            if found is not None:
                return found._replace(crossed=(partial, *found.crossed))
            return Source(frame.filename, elsewhere[0], "", ()) if constant_value(elsewhere[0]) == size else None
        if found is None and len(arguments) == 1 and isinstance(arguments[0], ast.BinOp):  # `2 * width`
            behind = constants_behind(self.numbers.files, frame, arguments[0], size, Agreed()).constants
            return behind[0] if len(behind) == 1 else None
        return found

    def _size_in(self, frame: Frame, size_node: ast.expr, size: int, tensors: bool, read: typing.Container[str] | None) -> Source:
        """For `shape = (self.layers, n)`, `torch.zeros(shape)`: what gave the size its number, by way of the line that names it."""
        found = self.numbers.given(frame, [size_node], size, tensors, read)
        if found is None:
            return Source(frame.filename, size_node, frame.name, ())
        return found._replace(crossed=(Crossing(frame.filename, size_node, frame.name, True), *found.crossed))

    def constants_behind(self, stack: typing.Sequence[tuple[types.CodeType, int]], size: int, keyword: str, agreed: Agreed) -> tuple[list[Made], list[int], int | None]:
        """For `nn.Linear(channels * side ** 2, …)`: what sets the numbers in its first argument, but those of factors that are agreed on."""
        call, frame = node_in(*stack[0]), frames_of(stack)
        if not isinstance(call, ast.Call) or frame is None:
            return [], [], None
        if len(stack) == 1 and not isinstance(frame.scope, ast.Module):
            frame = frame_at(frame.filename, call, frame.name)
        written = filled(frame, call) if frame is not None else call
        given = next((k.value for k in written.keywords if k.arg == keyword), written.args[0] if written.args else None)
        if frame is None or given is None or isinstance(given, ast.Starred):
            return [], [], None
        behind = constants_behind(self.numbers.files, frame, given, size, agreed)
        return [made for made in map(self.source_made, behind.constants) if made is not None], behind.not_counted, behind.fitting

    def size_asked_for(self, stack: typing.Sequence[tuple[types.CodeType, int]], axis: int | None) -> Source | None:
        """The one argument of a call that is the size of a tensor: `len(x)`, `x.size(1)`, `x.shape[1]`."""
        call = node_in(*stack[0])
        asked = [argument for argument in arguments_for(call, axis) if size_asked(argument, None) is not None] if isinstance(call, ast.Call) else []
        return Source(stack[0][0].co_filename, asked[0], "", ()) if len(asked) == 1 else None

    def sized(self, found: Source) -> tuple[torch.Tensor, int] | None:
        """For a number that was asked of a tensor, `x.size(1)`: the tensor, where it stands in a live frame, and the axis."""
        asked = size_asked(found.node, found.axis)
        tensor = self._value_of(found.filename, asked[0]) if asked is not None else None
        return (tensor, asked[1]) if asked is not None and isinstance(tensor, torch.Tensor) and tensor.dim() else None

    def set_within(self, code: types.CodeType, node: ast.AST, number: int) -> Made | None:
        """The one place in the making of an object, `Model(Config(size=32))`, that sets this number."""
        found = self.numbers.within(Source(code.co_filename, node, getattr(code, "co_qualname", ""), ()), number)
        return self.source_made(found._replace(crossed=())) if found is not None else None

    @functools.cached_property
    def numbers(self) -> Numbers:
        return Numbers((entry.code.co_filename for entry in self._failure.entries if entry.origin is Origin.USER), self._value_of)

    def _value_of(self, filename: str, node: ast.AST) -> typing.Any:
        """The value of an expression that stands in a live frame, or has globals alone in a function that is over."""
        for entry in reversed(self._failure.entries):
            if entry.code.co_filename == filename and (scope := function_node(entry.code)) is not None and any(n is node for n in ast.walk(scope)):
                value = entry.evaluator.value(node) if not _has_names_of_its_own(filename, node, scope) else UNKNOWN
                return value if value is not UNKNOWN else None
        return None

    def _number_made(self, entry: Entry, node: ast.AST) -> Made | None:
        """For an integer in a live frame: where it was set, as far as the callers and the syntax tell."""
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        number = entry.evaluator.value(node)
        if type(number) is not int:
            return None
        frame = frames_of([(e.code, e.lasti) for e in reversed(self._failure.entries[: entry.position + 1]) if e.origin.is_program])
        found = self.numbers.follow(frame, node, number) if frame is not None else None
        return self.source_made(found) if found is not None and found.node is not node else None

    def source_made(self, found: Source | None) -> Made | None:
        """The callers' expressions for a number, the nearest first, with the far end of its trail behind them."""
        if found is None or origin_of_file(found.filename) is not Origin.USER:
            return None
        made = self._here(stand_in(found.filename, found.function), found.node, operation_word(found.node))
        for crossing in reversed(found.crossed) if made is not None else ():
            if origin_of_file(crossing.filename) is not Origin.USER:
                continue  # inside of a library, which handed on what it was given
            near = self._here(stand_in(crossing.filename, crossing.function), crossing.node, operation_word(crossing.node))
            if near is not None and crossing.node is not found.node and not _same_place(near, made):
                made = dataclasses.replace(near, given=made)
        return made

    # -- attributes -----------------------------------------------------------------------------

    def _of_attribute(self, entry: Entry, node: ast.Attribute, depth: int) -> Made | None:
        owner = entry.evaluator.value(node.value)
        found = attribute_definition(owner, node.attr)
        if found is None:
            found = counted(owner, node.attr) or computed(owner, node.attr)
        if found is None:
            return None
        code, value = found
        number = entry.evaluator.value(node)
        if type(number) is int and isinstance(value, ast.Constant) and value.value != number:
            return None  # it has been given another value since, somewhere else
        made = self._here(code, value, operation_word(value))
        if type(number) is int and made is not None and not isinstance(value, ast.Constant):
            frame = self._when_made(code) or frame_at(code.co_filename, value, getattr(code, "co_qualname", ""))
            found = self.numbers.follow(frame, value, number) if frame is not None else None
            if found is not None and found.node is not value:
                given = self.source_made(found)
                hands_on = isinstance(value, (ast.Name, ast.Attribute))  # `self.k = k`, `self.k = config.k`
                return given if given is not None and hands_on else dataclasses.replace(made, given=given)
            if frame is not None and isinstance(value, ast.BinOp):
                made = dataclasses.replace(made, given=self._computed_of(frame, value, number))
        return made

    def _computed_of(self, frame: Frame, value: ast.BinOp, number: int) -> Made | None:
        """`config.dim // config.heads`: the lines that set both numbers, one behind the other."""
        chain: Made | None = None
        for found in reversed(constants_behind(self.numbers.files, frame, value, number, Agreed()).constants[:3]):
            made = self.source_made(found._replace(crossed=()))
            chain = dataclasses.replace(made, given=chain) if made is not None else chain
        return chain

    def _when_made(self, code: types.CodeType) -> Frame | None:
        """The callers of a constructor that is over, where the log has noted them and they were always the same."""
        stacks = set()
        for operation in self._failure.crash.timeline.operations:
            for position, (running, _) in enumerate(operation.stack):
                if running is code:
                    stacks.add(operation.stack[position + 1 :])
                    if len(stacks) > 1:
                        return None
        return frames_of(((code, 0), *stacks.pop())) if stacks else None


def _named_size(frame: Frame, call: ast.Call, axis: int) -> ast.expr | None:
    """Of `torch.zeros(shape)` the size at an axis, where `shape` is bound once in the function, to a tuple that is written out."""
    plain = len(call.args) == 1 and isinstance(call.args[0], ast.Name) and getattr(call.func, "attr", getattr(call.func, "id", "")) in SIZED
    bound = bound_to(frame.scope, call.args[0].id) if plain else ()  # type: ignore[attr-defined]
    value = bound[0][0] if len(bound) == 1 and not bound[0][1] else None
    if not isinstance(value, (ast.Tuple, ast.List)) or any(isinstance(item, ast.Starred) for item in value.elts):
        return None
    return value.elts[axis] if axis < len(value.elts) else None


def _has_names_of_its_own(filename: str, node: ast.AST, scope: ast.AST) -> bool:
    """Whether an expression uses variables of a function that lies inside of the one that is alive."""
    inner = frame_at(filename, node)
    while inner is not None and inner.scope is not scope:
        if any(parameter_of(inner.scope, n.id) or bound_to(inner.scope, n.id) for n in ast.walk(node) if isinstance(n, ast.Name)):
            return True
        around = enclosing(filename, inner.scope)
        inner = inner._replace(scope=around) if around is not None else None
    return False


def _same_place(one: Made, other: Made) -> bool:
    return one.place.span.file == other.place.span.file and one.place.span.line == other.place.span.line


def _hands_on(call: ast.Call, code: types.CodeType) -> bool:
    """`f(*args, **kwargs)` in a function whose only parameters are `*args` and `**kwargs`."""
    if code.co_argcount or code.co_kwonlyargcount or not code.co_flags & inspect.CO_VARARGS:
        return False
    star = code.co_varnames[0]
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Starred) or getattr(call.args[0].value, "id", "") != star:
        return False
    return all(keyword.arg is None and getattr(keyword.value, "id", "") == code.co_varnames[1] for keyword in call.keywords)


def _passes_on(code: types.CodeType) -> bool:
    return code.co_name in _PASSING or env.is_context_decorator(code)


def _passes_self(caller: Entry) -> bool:
    """`Class.method(obj, x)`: the first positional argument is `self`."""
    function = caller.node.func if isinstance(caller.node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(caller.evaluator.value(function.value), type)


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _comprehension_binding(entry: Entry, name: str) -> Bound | None:
    """A name bound by the comprehension around the failing expression (its own frame up to Python 3.11)."""
    statement, failing = entry.statement, entry.where
    if statement is None or failing is None:
        return None
    for node in ast.walk(statement):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            if not (node.lineno <= failing[0] and failing[2] <= (node.end_lineno or failing[2])):
                continue
            for generator in node.generators:
                for target in ast.walk(generator.target):
                    if isinstance(target, ast.Name) and target.id == name:
                        return node, generator.iter, "loop"
    return None
