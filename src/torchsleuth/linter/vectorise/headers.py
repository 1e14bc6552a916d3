"""What a loop runs over: a range, a counter, the rows of tensors; each becomes an axis."""

from __future__ import annotations

import ast
import copy

from torchsleuth.linter.vectorise.axes import Axis
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted
from torchsleuth.linter.vectorise.lift import Lifter
from torchsleuth.linter.vectorise.lifted import GiveUp, Lifted, Recurrence, name, number

SMALL = 4  # a fixed number of turns up to this is an unrolled formula, not a slow loop


class Headers:
    """The part of a reader that reads `for` and `while`."""

    context: Context
    lifter: Lifter
    depths: dict[str, int]
    all_axes: list[Axis]
    fresh: int

    def _new_axis(self, label: str, start: int, stop, stop_code: ast.expr) -> Axis:
        if stop[0] == ("const",) and stop[1] - start <= SMALL:
            raise GiveUp("it has only a few turns")
        axis = Axis(label, start, stop, stop_code)
        self.lifter.axes.append(axis)
        self.all_axes.append(axis)
        self.lifter.seen.append(label)
        self.lifter.carried.pop(label, None)
        return axis

    def _while_axis(self, loop: ast.While, body: list[ast.stmt], before: list[ast.stmt]) -> Axis:
        test = loop.test
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.NotEq)) and isinstance(test.left, ast.Name)):
            raise GiveUp("its condition is not a count")
        counter = test.left.id
        last = body.pop() if body else None
        steps = isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add) and integer(last.value) == 1
        steps = steps and isinstance(last.target, ast.Name) and last.target.id == counter
        if not steps and isinstance(last, ast.Assign) and ast.unparse(last) == f"{counter} = {counter} + 1":
            steps = True
        if not steps or any(isinstance(n, ast.Name) and n.id == counter and isinstance(n.ctx, ast.Store) for s in body for n in ast.walk(s)):
            raise GiveUp(f"`{counter}` is not simply counted up")
        if any(isinstance(n, ast.Continue) for s in body for n in ast.walk(s)):
            raise GiveUp("`continue` in a counting while loop")
        start = None
        for statement in reversed(before):
            if any(isinstance(n, ast.Name) and n.id == counter and isinstance(n.ctx, ast.Store) for n in ast.walk(statement)):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
                    start = integer(statement.value)
                break
        if start is None or start < 0:
            raise GiveUp(f"where `{counter}` starts is not shown")
        return self._new_axis(counter, start, self.context.size(test.comparators[0]), copy.deepcopy(test.comparators[0]))

    def _for_axis(self, target: ast.expr, iterated: ast.expr) -> Axis:
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
            function = iterated.func.id
            if function == "range":
                return self._range(target, iterated)
            if function == "enumerate" and len(iterated.args) == 1 and not iterated.keywords and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                if not isinstance(target.elts[0], ast.Name):
                    raise GiveUp("its target is not understood")
                return self._rows(target.elts[1], iterated.args[0], target.elts[0].id)
            if function == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(iterated.args):
                return self._rows(target, iterated, None)
            raise GiveUp(f"it runs over `{ast.unparse(iterated)[:40]}`")
        if isinstance(iterated, ast.Call) and self.context.dotted(iterated.func) == "torch.arange":
            return self._range(target, iterated)
        return self._rows(target, iterated, None)

    def _range(self, target: ast.expr, call: ast.Call) -> Axis:
        if not isinstance(target, ast.Name) or call.keywords or not 1 <= len(call.args) <= 2:
            raise GiveUp("its range has a step" if len(call.args) == 3 else "its range is not understood")
        start = integer(call.args[0]) if len(call.args) == 2 else 0
        if start is None or start < 0:
            raise GiveUp("where its range starts is not a number")
        stop = call.args[-1]
        size = self._inner_size(stop)
        return self._new_axis(target.id, start, size, copy.deepcopy(stop))

    def _inner_size(self, stop: ast.expr):
        """The size a range runs to; `len(row)` of a helper is a size of the tensor it is a part of."""
        text = ast.unparse(stop)
        for variable in list(self.lifter.env):
            if variable in text.replace("(", " ").replace(")", " ").replace("[", " ").replace(".", " ").split():
                value = self.lifter.env[variable]
                if isinstance(value, Lifted) and text in (f"len({variable})", f"{variable}.shape[0]", f"{variable}.size(0)"):
                    place = value.inner_position(0)
                    size = value.sizes[place] if place < len(value.sizes) else self.lifter._unknown_size(value, place)
                    if size is not None:
                        return size, 0
                raise GiveUp(f"its range `{text}` depends on an outer loop")
        for node in ast.walk(stop):
            if isinstance(node, ast.Name) and (self.lifter.axis(node.id) or node.id in self.lifter.carried):
                raise GiveUp(f"its range `{text}` depends on an outer loop")
        return self.context.size(stop)

    def _rows(self, target: ast.expr, iterated: ast.expr, counter: str | None) -> Axis:
        """`for row in x`, `for i, row in enumerate(x)`, `for a, b in zip(x, y)`."""
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "zip":
            sources, targets = list(iterated.args), list(target.elts) if isinstance(target, ast.Tuple) else []
            is_strict = [ast.unparse(k) for k in iterated.keywords] == ["strict=True"]
            if len(sources) != len(targets) or iterated.keywords and not is_strict:
                raise GiveUp("its zip is not understood")
        else:
            sources, targets, is_strict = [iterated], [target], False
        if not all(isinstance(t, ast.Name) for t in targets):
            raise GiveUp("its target is not understood")
        values = [self._source(s) for s in sources]
        self.fresh += 1
        label = counter or f"__i{self.fresh}"
        first = values[0]
        place = first.inner_position(0)
        size = first.sizes[place] if place < len(first.sizes) else self.lifter._unknown_size(first, place)
        stop_code = ast.Subscript(ast.Attribute(first.code, "shape", ast.Load()), number(place), ast.Load())
        axis = self._new_axis(label, 0, (size or ("rows", label), 0), stop_code)
        if counter:
            self.lifter.carried.pop(counter, None)
        if len(values) > 1 and not is_strict and not self.context.are_equally_long([ast.unparse(s) for s in sources]):
            self.lifter.zipped += [ast.unparse(s) for s in sources[1:]]
            self.lifter.assume(f"{' and '.join(f'`{ast.unparse(s)}`' for s in sources)} are equally long")
        for variable, value in zip(targets, values, strict=True):
            self.lifter.env[variable.id] = self.lifter.index(value, [name(label)])
            self.depths[variable.id] = len(self.lifter.axes)
            self.lifter.carried.pop(variable.id, None)
        return axis

    def _source(self, node: ast.expr) -> Lifted:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
            if not node.args and not node.keywords:
                node = node.func.value
        if isinstance(node, ast.Call):
            value = self.context.dotted(node.func)
            raise GiveUp(f"it runs over what `{value or ast.unparse(node.func)}` returns")
        if is_dotted(node) and ast.unparse(node) not in self.lifter.env:
            if ast.unparse(node).split(".")[0] in self.lifter.carried:
                raise Recurrence(f"`{ast.unparse(node)}` changes in the loop")
            return self.lifter.base(node)
        value = self.lifter.lift(node)
        if value.kind in ("number", "free"):
            raise GiveUp(f"nothing shows that `{ast.unparse(node)}` is a tensor")
        return value
