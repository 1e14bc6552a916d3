"""What a custom backward returns, in the number, order and shape of forward's inputs."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import CustomBackward, Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Diagnosis, Edit, Fix

_SHAPE = re.compile(r"returned an invalid gradient at index (\d+) - got \[(.*?)\] but expected shape compatible with \[(.*?)\]")
_COUNT = re.compile(r"returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
_EXTRA = re.compile(r"returned a gradient different than None at position (\d+)")


class CustomBackwardReturnsFixer(Fixer):
    rule = "custom-backward-returns"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        custom, message = evidence.custom, evidence.exception.message
        script = scripts.get(custom.return_place) if custom is not None else None
        statement = script.node_at(custom.return_place.span) if script is not None else None
        if custom is None or script is None or not isinstance(statement, ast.Return) or statement.value is None:
            return []
        function = _Function(script, statement, custom)
        if (found := _EXTRA.search(message)) is not None:
            return [_none_at(scripts, function, int(found[1]) - 1)]
        if (found := _COUNT.search(message)) is not None:
            return [_counted(scripts, function, int(found[1]), int(found[2]))]
        if (found := _SHAPE.search(message)) is not None:
            got, wanted = ([int(n) for n in re.findall(r"\d+", text)] for text in (found[2], found[3]))
            return _shaped(scripts, function, int(found[1]), got, wanted)
        return []


class _Function:
    """The methods of the Function around a return of its backward."""

    def __init__(self, script: Script, statement: ast.Return, custom: CustomBackward) -> None:
        self.script, self.statement, self.custom = script, statement, custom
        self.backward = script.scope_of(statement)
        owner = script.class_of(statement)
        methods = {node.name: node for node in owner.body if isinstance(node, Function)} if owner is not None else {}
        self.forward = methods.get("forward")
        self.setup = methods.get("setup_context")
        value = statement.value
        self.elements: list[ast.expr] = list(value.elts) if isinstance(value, ast.Tuple) else [value]

    @property
    def context(self) -> str:
        return self.backward.args.args[0].arg if isinstance(self.backward, Function) and self.backward.args.args else "ctx"

    @property
    def gradient(self) -> str:
        arguments = self.backward.args.args if isinstance(self.backward, Function) else []
        return arguments[1].arg if len(arguments) == 2 and not self.backward.args.vararg else ""

    def returned(self) -> ast.expr | None:
        """The expression forward returns, followed through one assignment."""
        if self.forward is None:
            return None
        returns = [node for node in self.script.own_nodes(self.forward) if isinstance(node, ast.Return) and node.value is not None]
        if len(returns) != 1:
            return None
        value = returns[0].value
        if isinstance(value, ast.Name):
            bound = [
                node.value
                for node in self.script.own_nodes(self.forward)
                if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
            ]
            return bound[0] if len(bound) == 1 else value
        return value


def _none_at(scripts: Scripts, function: _Function, position: int) -> Fix | None:
    if not 0 <= position < len(function.elements):
        return None
    name = function.custom.parameters[position] if position < len(function.custom.parameters) else f"argument {position}"
    edits = [function.script.replace(function.elements[position], "None")]
    return scripts.fix(f"Return `None` for `{name}`, which is not a tensor.", edits)


# -- how many -------------------------------------------------------------------------------------


def _counted(scripts: Scripts, function: _Function, expected: int, got: int) -> Fix | None:
    script, custom = function.script, function.custom
    if len(function.elements) != got or any(isinstance(item, ast.Starred) for item in function.elements):
        return None
    if got > expected:
        last = function.elements[expected - 1]
        extra = [script.segment(item) for item in function.elements[expected:]]
        edits = [script.edit(script.end(last), script.end(function.elements[-1]), "")]
        return scripts.fix(f"Return {expected} values.", edits, f"`{', '.join(extra)}` is then not returned.", safe=False)
    missing = custom.parameters[got:expected]
    if len(missing) != expected - got:
        return None
    values, doubts = [], []
    for position, name in enumerate(missing, got):
        needs = custom.needs_grad[position] if position < len(custom.needs_grad) else True
        value = _gradient_of_term(function, name) if needs else "None"
        if value is None:
            value = "None"
            doubts.append(name)
        values.append(value)
    edits = [script.insert(script.end(function.elements[-1]), "".join(f", {value}" for value in values))]
    words = ", ".join(f"`{value}` for `{name}`" for value, name in zip(values, missing, strict=True))
    meaning = f"`{', '.join(doubts)}` then gets no gradient: put the right one there if it should train." if doubts else ""
    return scripts.fix(f"Return {words} too.", edits, meaning, safe=not doubts)


def _gradient_of_term(function: _Function, name: str) -> str | None:
    """`grad` where forward adds the argument to its result, `-grad` where it subtracts it, and nothing else uses it."""
    value = _added(function, name) or function.returned()
    if value is None or not function.gradient or function.forward is None:
        return None
    uses = [n for n in ast.walk(function.forward) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    saves = [n for c in ast.walk(function.forward) if isinstance(c, ast.Call) and called(c) == "save_for_backward" for n in ast.walk(c) if n in uses]
    tests = [n for c in ast.walk(function.forward) if isinstance(c, ast.Compare) for n in ast.walk(c) if n in uses]  # `bias is not None`
    sign = _sign_of_term(value, name)
    if sign is None or len(uses) - len(saves) - len(tests) != 1:
        return None
    return function.gradient if sign > 0 else f"-{function.gradient}"


def _added(function: _Function, name: str) -> ast.expr | None:
    """`out + bias` of a forward that ends in `if bias is not None: out = out + bias` or `out += bias` and returns `out`."""
    script, forward = function.script, function.forward
    returns = [n for n in script.own_nodes(forward) if isinstance(n, ast.Return)] if forward is not None else []
    if len(returns) != 1 or not isinstance(returns[0].value, ast.Name):
        return None
    result = returns[0].value.id
    bound = [n for n in script.own_nodes(forward) if isinstance(n, (ast.Assign, ast.AugAssign)) and result in names_in(n, ast.Store)]
    last = max(bound, key=lambda n: n.lineno, default=None)
    if last is None or script.loops_around(last):
        return None
    if isinstance(last, ast.AugAssign):
        return ast.BinOp(ast.Name(result, ast.Load()), last.op, last.value) if isinstance(last.op, (ast.Add, ast.Sub)) else None
    return last.value if isinstance(last.value, ast.BinOp) else None


def _sign_of_term(node: ast.expr, name: str, sign: int = 1) -> int | None:
    if isinstance(node, ast.Name):
        return sign if node.id == name else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _sign_of_term(node.operand, name, -sign)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        right = -sign if isinstance(node.op, ast.Sub) else sign
        return _sign_of_term(node.left, name, sign) if name in names_in(node.left) else _sign_of_term(node.right, name, right)
    return None


# -- which shape ----------------------------------------------------------------------------------


def _shaped(scripts: Scripts, function: _Function, position: int, got: list[int], wanted: list[int]) -> list[Fix | None]:
    if position >= len(function.elements) or position >= len(function.custom.parameters):
        return []
    script, element = function.script, function.elements[position]
    name = function.custom.parameters[position]
    reduction = _reduction(function, name, got, wanted)
    if reduction is not None:
        suffix, divide, word = reduction
        computed = script.segment(element) != function.gradient
        shape, extra = _shape_of(function, name)
        if shape is None:
            return []
        text = f"{suffix}.expand({shape})"
        edits = [*script.wrapped(element, text), *extra]
        if computed:
            meaning = f"Right if `{script.segment(element)}` is what each element gets; `torchsleuth check` says whether it is."
            return [scripts.fix(f"Spread it over what `{word}` reduced: `{text}`.", edits, meaning, safe=False)]
        if divide:
            edits = [*script.wrapped(element, f"{text} / {_count(shape, divide)}"), *extra]
        return [scripts.fix(f"Spread the gradient over what `{word}` reduced: `{text}`.", edits)]
    swapped = _swapped(scripts, function) if _belongs_to_the_other(function, position, got) else None
    if len(got) == len(wanted) == 2 and got == wanted[::-1] and got != wanted and swapped is None:
        return [scripts.fix("Transpose it: it has its two dimensions in the other order.", script.wrapped(element, ".t()"), safe=False,
                            meaning="The shape fits then; `torchsleuth check` says whether the values do.")]  # fmt: skip
    if _product(got) == _product(wanted) and got != wanted and sorted(got) != sorted(wanted):
        shape, extra = _shape_of(function, name)
        if shape is not None and _reshapes(function, name):
            return [scripts.fix(f"Give it the shape of `{name}` again.", [*script.wrapped(element, f".reshape({shape})"), *extra])]
    return [swapped]


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _reduction(function: _Function, name: str, got: list[int], wanted: list[int]) -> tuple[str, list[int], str] | None:
    """How to undo the sum or mean that forward took of the input: (`.unsqueeze(1)`, sizes to divide by, its text)."""
    value = function.returned()
    if not isinstance(value, ast.Call) or called(value) not in ("sum", "mean") or not isinstance(value.func, ast.Attribute):
        return None
    script = function.script
    space = isinstance(value.func.value, ast.Name) and value.func.value.id == script.module_name("torch")
    operand = value.args[0] if space and value.args else value.func.value
    if not (isinstance(operand, ast.Name) and operand.id == name):
        return None
    element = script.segment(function.elements[function.custom.parameters.index(name)])
    if element != function.gradient and not _is_scaled(function.elements[function.custom.parameters.index(name)], function.gradient):
        return None  # something is computed there already; what is missing is not clear
    arguments = value.args[1:] if space else value.args
    dim = next((k.value for k in value.keywords if k.arg in ("dim", "axis")), arguments[0] if arguments else None)
    keepdim = next((k.value for k in value.keywords if k.arg == "keepdim"), arguments[1] if len(arguments) > 1 else None)
    kept = isinstance(keepdim, ast.Constant) and keepdim.value is True
    word = " ".join(script.segment(value).split())
    if dim is None:
        return ("", list(range(len(wanted))) if called(value) == "mean" else [], word) if got == [] else None
    dims = _numbers(dim)
    if dims is None or any(not -len(wanted) <= d < len(wanted) for d in dims):
        return None
    dims = sorted(d % len(wanted) for d in dims)
    expected = [size for axis, size in enumerate(wanted) if axis not in dims]
    if not kept and got != expected:
        return None
    suffix = "" if kept else "".join(f".unsqueeze({d})" for d in dims)
    return suffix, dims if called(value) == "mean" else [], word


def _is_scaled(node: ast.expr, gradient: str) -> bool:
    """`grad / n`, `2 * grad`: the gradient and one factor."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Mult, ast.Div))
        and bool(gradient)
        and (path_of(node.left) == gradient or (path_of(node.right) == gradient and isinstance(node.op, ast.Mult)))
    )


def _numbers(node: ast.expr) -> list[int] | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values if all(type(item) is int for item in values) else None


def _count(shape: str, dims: list[int]) -> str:
    sizes = [f"{shape}[{d}]" for d in dims]
    return sizes[0] if len(sizes) == 1 else f"({' * '.join(sizes)})"


def _shape_of(function: _Function, name: str) -> tuple[str | None, list[Edit]]:
    """An expression for the input's shape inside backward, and the edits that make it available."""
    script, context = function.script, function.context
    for node in script.own_nodes(function.backward):
        # `(x,) = ctx.saved_tensors`: the name stands for what was saved in that position.
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == f"{context}.saved_tensors":
            target = node.targets[0]
            names = [item.id for item in target.elts if isinstance(item, ast.Name)] if isinstance(target, ast.Tuple) else []
            saved = _saved(function)
            if saved is not None and name in saved and len(names) == len(saved):
                return f"{names[saved.index(name)]}.shape", []
    saved = _saved(function)
    if saved is not None and name in saved:
        return f"{context}.saved_tensors[{saved.index(name)}].shape", []
    holder = function.setup or function.forward
    if holder is None or function.setup is not None:
        return None, []
    own = holder.args.args[0].arg
    first = holder.body[1] if _is_docstring(holder.body[0]) and len(holder.body) > 1 else holder.body[0]
    for node in script.own_nodes(holder):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in (f"{name}.shape", f"{name}.size()"):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == own:
                return f"{context}.{target.attr}", []
    return f"{context}.{name}_shape", script.before(first, f"{own}.{name}_shape = {name}.shape")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _saved(function: _Function) -> list[str] | None:
    holder = function.setup or function.forward
    if holder is None or function.setup is not None:
        return None
    calls = [n for n in function.script.own_nodes(holder) if isinstance(n, ast.Call) and called(n) == "save_for_backward"]
    if len(calls) != 1 or any(not isinstance(argument, ast.Name) for argument in calls[0].args):
        return None
    return [argument.id for argument in calls[0].args]


def _reshapes(function: _Function, name: str) -> bool:
    """Forward only rearranges the input: `x.view(-1)`, `x.flatten()`; then backward has to undo just that."""
    value = function.returned()
    return (
        isinstance(value, ast.Call)
        and called(value) in ("view", "reshape", "flatten", "squeeze", "unsqueeze")
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id == name
    )


def _belongs_to_the_other(function: _Function, position: int, got: list[int]) -> bool:
    """The returned gradient has the shape of the other input, as far as the graph knows the inputs."""
    inputs = function.custom.inputs
    other = inputs[1 - position] if len(inputs) == 2 and position < 2 else None
    return other is not None and list(other.shape) == got


def _swapped(scripts: Scripts, function: _Function) -> Fix | None:
    """Two gradients in the wrong order."""
    if len(function.elements) != 2 or len(function.custom.parameters) != 2:
        return None
    script = function.script
    one, other = function.elements
    if any(isinstance(item, ast.Constant) for item in (one, other)):
        return None
    edits = [script.replace(one, script.segment(other)), script.replace(other, script.segment(one))]
    names = ", ".join(f"`{name}`" for name in function.custom.parameters)
    return scripts.fix(
        f"Return the gradients in the order of forward's arguments: {names}.",
        edits,
        "Right if the two were exchanged; `torchsleuth check` says whether the values fit.",
        safe=False,
    )
