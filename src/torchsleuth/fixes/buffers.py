"""A buffer filled row by row in a loop that also reads it: the rows in a list, stacked after the loop.

Only where it can be proven from the source that the loop writes every row once, in order, and reads only rows it has
written; and where it was seen that each row had the shape, dtype and device of its place (a write would broadcast).
"""

from __future__ import annotations

import ast

from torchsleuth.evidence import WriteSite
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Edit, Fix

_MAKERS = ("zeros", "empty", "ones", "full", "new_zeros", "new_empty", "new_ones", "new_full", "rand", "randn")
_LIKE = ("zeros_like", "empty_like", "ones_like", "full_like")


def stacked(scripts: Scripts, sites: list[WriteSite]) -> Fix | None:
    """All of these writes replaced; None where one of them does not fit the pattern."""
    edits: list[Edit] = []
    names: list[str] = []
    for site in sites:
        script = scripts.get(site.place)
        statement = script.statement_at(site.place.span) if script is not None else None
        filling = _Filling.of(script, statement) if script is not None and isinstance(statement, ast.Assign) else None
        if script is None or filling is None or not site.fits_exactly:
            return None
        if filling.name not in names:
            names.append(filling.name)
            edits = filling.edits(edits)
    words = ", ".join(f"`{name}`" for name in names)
    return scripts.fix(f"Collect the rows of {words} in a list, and `torch.stack` them after the loop.", edits) if names else None


class _Filling:
    """`for t in range(n): … out[t] = value`, with `out = torch.zeros(n, …)` before it."""

    def __init__(self, script: Script, statement: ast.Assign, loop: ast.For, name: str) -> None:
        self.script, self.statement, self.loop, self.name = script, statement, loop, name
        self.axis = 0
        self.first_rows = 0  # rows that are there before the loop
        self.made: ast.Assign
        self.counter = ""
        self.reads: list[tuple[ast.Subscript, ast.expr]] = []

    @classmethod
    def of(cls, script: Script, statement: ast.Assign) -> _Filling | None:
        target = statement.targets[0] if len(statement.targets) == 1 else None
        loop = script.parent(statement)
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name) or not isinstance(loop, ast.For):
            return None
        found = cls(script, statement, loop, target.value.id)
        return found if found._fits(target) else None

    # -- the proof --------------------------------------------------------------------------------

    def _fits(self, target: ast.Subscript) -> bool:
        script, loop = self.script, self.loop
        if script.module_name("torch") is None or loop.orelse or loop not in script.block_of(loop) or loop.body[0].lineno == loop.lineno:
            return False
        if any(isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.Await)) for inner in loop.body for node in ast.walk(inner)):
            return False
        place = _placed(target)
        bounds = _bounds(loop)
        made = self._maker()
        if place is None or bounds is None or made is None or not script.is_alone_on_line(self.statement):
            return False
        self.axis, index = place
        self.counter, start, end = bounds
        offset = _offset(index, self.counter)
        if offset is None or self.counter in _stores(loop.body):
            return False
        self.first_rows = start + offset
        size = _size(made.value, self.axis)
        if size is None or self.first_rows not in (0, 1) or not any(_is_sum(size, bound, offset) for bound in end):
            return False
        self.made = made
        between = script.block_of(loop)
        between = between[between.index(made) + 1 : between.index(loop)]
        if names_in(size) & (_stores(between) | _stores(loop.body)):
            return False
        return self._uses_fit(between, start, offset)

    def _maker(self) -> ast.Assign | None:
        """The one statement before the loop, in its block, that makes the buffer."""
        block = self.script.block_of(self.loop)
        before = block[: block.index(self.loop)]
        made = [s for s in before if isinstance(s, ast.Assign) and any(path_of(goal) == self.name for goal in s.targets)]
        alone = len(made) == 1 and len(made[0].targets) == 1 and self.script.is_alone_on_line(made[0])
        return made[0] if alone and called(made[0].value) in (*_MAKERS, *_LIKE) else None

    def _uses_fit(self, between: list[ast.stmt], start: int, offset: int) -> bool:
        """Every use of the buffer up to the end of the loop is one that a list can serve."""
        script, loop, statement = self.script, self.loop, self.statement
        scope = script.scope_of(loop)
        if any(isinstance(node, (*Function, ast.Lambda)) and self.name in names_in(node) for node in ast.walk(scope) if node is not scope):
            return False
        if script.loops_around(loop) and self.made not in script.block_of(loop):
            return False
        for node in script.own_nodes(scope):
            if not isinstance(node, ast.Name) or node.id != self.name or node is self.made.targets[0] or node is statement.targets[0].value:
                continue
            owner = script.statement_of(node)
            inside = any(owner is inner or owner in ast.walk(inner) for inner in loop.body) or owner is loop
            if not inside:
                if any(owner in ast.walk(item) for item in between):
                    # Rows set before the loop: `out[0] = first`. Nobody else may hold the buffer.
                    first = isinstance(owner, ast.Assign) and len(owner.targets) == 1 and isinstance(owner.targets[0], ast.Subscript)
                    if not first or owner.targets[0].value is not node or self.first_rows == 0:
                        return False
                elif isinstance(node.ctx, ast.Store) and (node.lineno, node.col_offset) > (loop.lineno, loop.col_offset):
                    pass
                continue
            read = script.parent(node)
            if not isinstance(read, ast.Subscript) or read.value is not node or not isinstance(read.ctx, ast.Load):
                return False
            place = _placed(read)
            back = _offset(place[1], self.counter) if place is not None and place[0] == self.axis else None
            if place is None or back is None:
                return False
            after = read.lineno > (statement.end_lineno or statement.lineno)
            if back > offset or (back == offset and not after):
                return False
            if start + back < 0 and not self._is_guarded(read):
                return False
            self.reads.append((read, place[1]))
        return True

    def _is_guarded(self, read: ast.AST) -> bool:
        """Under a condition that keeps the first round out: `t > 0`, `t`; or in the other branch of `t == 0`."""
        node = read
        for ancestor in self.script.ancestors(read):
            if ancestor is self.loop:
                return False
            if isinstance(ancestor, (ast.If, ast.IfExp)):
                test = ast.unparse(ancestor.test)
                body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
                other = ancestor.orelse if isinstance(ancestor.orelse, list) else [ancestor.orelse]
                t = self.counter
                if node in body and test in (t, f"{t} > 0", f"{t} >= 1", f"{t} != 0", f"0 < {t}"):
                    return True
                if node in other and test in (f"not {t}", f"{t} == 0", f"{t} < 1", f"0 == {t}"):
                    return True
            node = ancestor
        return False

    # -- the edits --------------------------------------------------------------------------------

    def edits(self, earlier: list[Edit]) -> list[Edit]:
        script, loop, statement = self.script, self.loop, self.statement
        torch = script.module_name("torch")
        taken = names_in(script.tree)
        rows = next(name for name in (f"{self.name}_list", f"{self.name}_rows", f"new_{self.name}", f"{self.name}_{self.name}") if name not in taken)
        dim = f", dim={self.axis}" if self.axis else ""
        found = list(earlier)
        if self.first_rows:
            index = ", ".join([":"] * self.axis + ["0"])
            found = script.followed(found, (script.first_line(loop), 1), f"{script.indent_of(loop)}{rows} = [{self.name}[{index}]]\n")
        else:
            found.append(script.replace(self.made, f"{rows} = []"))
        value = statement.value
        begin, end = script.end(statement.targets[0]), script.start(value)
        equals = script.between(begin, end).index("=")
        after = (begin[0], begin[1] + equals + 1)  # the sign stands on the target's line: nothing can break it there
        if script.source.lines[after[0] - 1][after[1] - 1 :][:1] == " ":
            after = (after[0], after[1] + 1)
        found.append(script.edit(script.start(statement), after, f"{rows}.append("))
        found = script.followed(found, script.end(statement), ")")
        found += [script.replace(read, f"{rows}[{script.segment(index)}]") for read, index in self.reads]
        return script.followed(found, script.end_of_block(loop), f"\n{script.indent_of(loop)}{self.name} = {torch}.stack({rows}{dim})")


def _placed(node: ast.Subscript) -> tuple[int, ast.expr] | None:
    """Axis and index of `x[t]`, `x[t, :]`, `x[:, t]`: one index, all else whole."""
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    chosen = [(axis, item) for axis, item in enumerate(items) if not _is_whole(item)]
    if len(chosen) != 1 or isinstance(chosen[0][1], (ast.Slice, ast.Starred)):
        return None
    axis, item = chosen[0]
    if any(isinstance(other, ast.Constant) and other.value is ... for other in items[:axis]):
        return None
    return axis, item


def _is_whole(node: ast.expr) -> bool:
    if isinstance(node, ast.Slice):
        return node.lower is None and node.upper is None and node.step is None
    return isinstance(node, ast.Constant) and node.value is ...


def _bounds(loop: ast.For) -> tuple[str, int, list[str]] | None:
    """Counter, first value, and the ways to write the end of a loop that counts upwards by one."""
    iterated = loop.iter
    if isinstance(loop.target, ast.Name) and called(iterated) == "range" and isinstance(iterated, ast.Call) and 1 <= len(iterated.args) <= 2:
        start = 0
        if len(iterated.args) == 2:
            first = iterated.args[0]
            if not isinstance(first, ast.Constant) or not isinstance(first.value, int) or first.value < 0:
                return None
            start = first.value
        return loop.target.id, start, _same_sizes(iterated.args[-1])
    if called(iterated) == "enumerate" and isinstance(iterated, ast.Call) and len(iterated.args) == 1 and not iterated.keywords:
        if isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name) and path_of(iterated.args[0]):
            rows = path_of(iterated.args[0])
            return loop.target.elts[0].id, 0, [f"len({rows})", f"{rows}.size(0)", f"{rows}.shape[0]"]
    return None


def _same_sizes(node: ast.expr) -> list[str]:
    """`x.size(1)` and `x.shape[1]` are the same number; `len(x)` is `x.size(0)`."""
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and called(node) == "len" and len(node.args) == 1:
        inner = ast.unparse(node.args[0])
        return [text, f"{inner}.size(0)", f"{inner}.shape[0]"]
    if isinstance(node, ast.Call) and called(node) == "size" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
        inner, axis = ast.unparse(node.func.value), ast.unparse(node.args[0])
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        inner, axis = ast.unparse(node.value.value), ast.unparse(node.slice)
    else:
        return [text]
    return [f"{inner}.size({axis})", f"{inner}.shape[{axis}]", *([f"len({inner})"] if axis == "0" else [])]


def _offset(node: ast.expr, counter: str) -> int | None:
    """1 for `t + 1`, -1 for `t - 1`, 0 for `t`."""
    if isinstance(node, ast.Name):
        return 0 if node.id == counter else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and path_of(node.left) == counter:
        if isinstance(node.right, ast.Constant) and type(node.right.value) is int:
            return node.right.value if isinstance(node.op, ast.Add) else -node.right.value
    return None


def _size(value: ast.expr, axis: int) -> ast.expr | None:
    """The expression for the size of an axis in `torch.zeros(a, b)` or `torch.zeros((a, b))`."""
    if not isinstance(value, ast.Call):
        return None
    if called(value) in _LIKE:
        source = value.args[0] if value.args else None
        return ast.parse(f"{ast.unparse(source)}.size({axis})", mode="eval").body if source is not None and path_of(source) else None
    arguments = value.args
    if len(arguments) >= 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = arguments[0].elts
    elif called(value) in ("full", "new_full"):
        return None
    if any(isinstance(item, ast.Starred) for item in arguments):
        return None
    return arguments[axis] if axis < len(arguments) else None


def _is_sum(size: ast.expr, bound: str, offset: int) -> bool:
    """The buffer has exactly the rows that are written: size = bound + offset."""
    texts = _same_sizes(size)
    if offset == 0:
        return bound in texts
    try:
        if ast.literal_eval(size) == ast.literal_eval(bound) + offset:
            return True
    except (ValueError, TypeError, SyntaxError):
        pass
    return f"{bound} + {offset}" in texts or any(f"{text} - {offset}" == bound for text in texts)


def _stores(nodes: list[ast.stmt]) -> set[str]:
    return names_in(nodes, ast.Store)
