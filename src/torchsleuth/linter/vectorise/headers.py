"""What a loop runs over: a range, a counter, the rows of tensors; each becomes an axis."""

from __future__ import annotations

import ast
import copy

from torchsleuth.linter.calls import is_flat
from torchsleuth.linter.vectorise.axes import Axis
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted
from torchsleuth.linter.vectorise.lift import Lifter
from torchsleuth.linter.vectorise.lifted import INNER, GiveUp, Lifted, Recurrence, name, number
from torchsleuth.linter.vectorise.shapes import ranked

SMALL = 4  # a fixed number of turns up to this is an unrolled formula, not a slow loop


class Headers:
    """The part of a reader that reads `for` and `while`."""

    context: Context
    lifter: Lifter
    depths: dict[str, int]
    all_axes: list[Axis]
    assumed_ranks: set[str]
    bounds: dict[str, ast.expr]
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
        stop = call.args[-1]
        if start is None and (outer := self.lifter.loop_offset(call.args[0])) is not None and outer[0].start == 0 and outer[1] >= 0:
            start = 0  # `range(i + 1, n)`: all of it, under the condition that it is behind `i`
            self.bounds[target.id] = ast.Compare(name(target.id), [ast.GtE()], [call.args[0]])
        if start is None or start < 0:
            raise GiveUp("where its range starts is not a number")
        if (outer := self.lifter.loop_offset(stop)) is not None and outer[0].start == 0 and outer[1] in (0, 1) and start == 0 and target.id not in self.bounds:
            self.bounds[target.id] = ast.Compare(name(target.id), [ast.Lt()], [stop])  # `range(i)`: as far as the loop around it goes
            return self._new_axis(target.id, 0, outer[0].stop, copy.deepcopy(outer[0].stop_code))
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
        if not all(isinstance(t, ast.Name) or isinstance(t, ast.Tuple) and all(isinstance(e, ast.Name) for e in t.elts) for t in targets):
            raise GiveUp("its target is not understood")
        values = [self._source(s) for s in sources]
        self.fresh += 1
        label = counter or f"__i{self.fresh}"
        first = values[0]
        place = first.inner_position(0)
        size = first.sizes[place] if place < len(first.sizes) else self.lifter._unknown_size(first, place)
        stop_code = ast.Subscript(ast.Attribute(first.code, "shape", ast.Load()), number(place), ast.Load())
        if first.is_root and not place and not self.lifter.bases.get(first.root, {"sure": True})["sure"]:
            stop_code = ast.Call(name("len"), [first.code], [])  # positions may come in a list, which has no shape
        axis = self._new_axis(label, 0, (size or ("rows", label), 0), stop_code)
        if counter:
            self.lifter.carried.pop(counter, None)
        if len(values) > 1 and not is_strict and not self.context.are_equally_long([ast.unparse(s) for s in sources]):
            self.lifter.zipped += [ast.unparse(s) if v.root == "" else v.root for s, v in zip(sources[1:], values[1:], strict=True)]
            for value in values[1:]:
                self.lifter.equal.tries(("size", first.root, 0), ("size", value.root, 0))
                if value.sizes and value.sizes[0] and value.sizes[0][0] == "flat":
                    self.lifter.equal.join(first.sizes[0], value.sizes[0])
            self.lifter.assume(f"{' and '.join(f'`{ast.unparse(s)}`' for s in sources)} are equally long")
        for part, value in zip(targets, values, strict=True):
            if isinstance(part, ast.Tuple):
                self._unpacked(part, value, label)
            else:
                self._turn(part, self.lifter.index(value, [name(label)]))
        return axis

    def _unpacked(self, target: ast.Tuple, value: Lifted, label: str) -> None:
        """`for i, j in edges`: every row has as many elements as there are names."""
        parts = self.parts_of(self.lifter.index(value, [name(label)]), len(target.elts))
        for part, one in zip(target.elts, parts, strict=True):
            self._turn(part, one)

    def parts_of(self, row: Lifted, count: int) -> list[Lifted]:
        """The elements of a row that is unpacked into so many names."""
        if row.root not in self.lifter.bases or not self.lifter.bases[row.root]["sure"] or not row.is_root and row.more:
            raise GiveUp("nothing here shows that a tensor is unpacked; it may be a list of pairs")
        if row.more:
            self.assumed_ranks.add(row.root)
            self.lifter.assume(f"`{row.root}` has {len(row.dims) + 1} dimensions")
            row = ranked(self.lifter, row, row.rank + 1)
        if row.is_root:
            self.lifter.columns[row.root, row.inner_position(0)] = count
        return [self.lifter.index(row, [number(place)]) for place in range(count)]

    def _turn(self, target: ast.Name, value: Lifted) -> None:
        """What the header gives a name in every turn."""
        self.lifter.env[target.id] = value
        self.depths[target.id] = len(self.lifter.axes)
        self.lifter.carried.pop(target.id, None)

    def _source(self, node: ast.expr) -> Lifted:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
            if not node.args and not node.keywords:
                node = node.func.value
        if is_flat(node) and is_dotted(node.func.value) and ast.unparse(node.func.value).split(".")[0] not in {*self.lifter.env, *self.lifter.carried}:
            whole = self.lifter.base(node.func.value)
            return Lifted(copy.deepcopy(node), (INNER,), sizes=(("flat", ast.unparse(node)),), root=whole.root)
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
