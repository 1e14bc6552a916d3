"""Corrupts correct Functions by systematic operators: one slip per mutant, and the relation a report should name.

Whether a mutant is really wrong is decided here, apart from torchsleuth: its gradients through autograd's
own engine are compared with autograd through forward. A mutant that is right after all is equivalent.
"""

import ast
import copy
import inspect
import itertools
import linecache
import textwrap
import types
import typing

import torch

import right_functions as right

# What may be said of each kind of slip: relations of values, or the kind of the finding.
# A backward that raises, or returns no tensor, is named by that and by its line, whatever the slip was.
CRASHES = {"raises", "not-tensor"}
EXPECTED = {
    "sign": {"factor"},
    "sign of a term": {"factor", "missing-term", "condition", "tensor-factor", "scaled-part"},
    "drop a factor": {"tensor-factor", "factor", "no-grad-output", "not-linear", "other-tensor", "condition", "missing-term", "missing-sum",
                      "shape", "other-input", "scaled-part", "passed-on"},
    "drop a term": {"missing-term", "missing-sum", "tensor-factor", "factor", "zero", "condition", "not-linear"},
    "mean/sum": {"factor", "missing-sum", "scaled-part"},
    "wrong axis": {"shape", "wrong-axis", "rearranged", "reduction", "adjoint", "transposed"},
    "drop the reduction": {"shape", "reduction", "missing-sum"},
    "swap returns": {"other-input", "shape", "none", "unexpected"},
    "transpose": {"transposed", "shape", "other-input"},
    "forget grad_output": {"no-grad-output", "not-linear"},
    "save the wrong tensor": {"other-tensor", "shape", "tensor-factor", "condition", "other-input", "factor"},
    "modify in place": {"grad-output-write"},
    "constant": {"factor", "tensor-factor", "other-tensor", "scaled-part"},
    "return None": {"none"},
    "drop a return": {"count"},
    "mask": {"condition"},
    "drop an argument": {"factor", "tensor-factor", "other-tensor"},
    "needs_input_grad": {"needs-input-grad"},
}  # fmt: skip


class Mutant(typing.NamedTuple):
    function: str
    operator: str
    text: str  # the source of the whole class
    where: str


def source_of(name: str) -> str:
    return textwrap.dedent(inspect.getsource(getattr(right, name)))


def mutants_of(name: str) -> list[Mutant]:
    """Every mutant of one Function, each with one change."""
    text = source_of(name)
    tree = ast.parse(text)
    found, seen = [], {ast.dump(tree)}
    for operator, make in OPERATORS.items():
        for change in make(tree):
            changed = copy.deepcopy(tree)
            where = change(changed)
            ast.fix_missing_locations(changed)
            dump = ast.dump(changed)
            if dump in seen:
                continue
            seen.add(dump)
            found.append(Mutant(name, operator, ast.unparse(changed), where))
    return found


def method_in(tree: ast.AST, name: str) -> ast.FunctionDef:
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def _nodes(tree: ast.AST, method: str = "backward") -> list[ast.AST]:
    return [node for node in ast.walk(method_in(tree, method))]


def _at(position: int, replace: typing.Callable[[ast.AST], ast.AST], method: str = "backward"):
    """A change that replaces the node at a position of the walk."""

    def change(tree: ast.AST) -> str:
        target = _nodes(tree, method)[position]
        new = replace(target)

        class Put(ast.NodeTransformer):
            def visit(self, node):
                return new if node is target else self.generic_visit(node)

        Put().visit(tree)
        return f"{ast.unparse(target)} -> {ast.unparse(new)}"

    return change


def _elements(tree: ast.AST):
    """Positions of the returned expressions."""
    nodes = _nodes(tree)
    for node in nodes:
        if isinstance(node, ast.Return):
            for element in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
                if not (isinstance(element, ast.Constant) and element.value is None):
                    yield nodes.index(element)


def _sign(tree):
    for position in _elements(tree):
        yield _at(position, lambda node: ast.UnaryOp(ast.USub(), node))


def _binary(tree, kinds):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
            yield position


def _term_sign(tree):
    for position in _binary(tree, (ast.Add, ast.Sub)):
        yield _at(position, lambda n: ast.BinOp(n.left, ast.Sub() if isinstance(n.op, ast.Add) else ast.Add(), n.right))


def _drop_factor(tree):
    for position in _binary(tree, ast.Mult):
        yield _at(position, lambda n: n.left)
        yield _at(position, lambda n: n.right)
    for position in _binary(tree, ast.Div):
        yield _at(position, lambda n: n.left)


def _drop_term(tree):
    for position in _binary(tree, (ast.Add, ast.Sub)):
        yield _at(position, lambda n: n.left)
        yield _at(position, lambda n: n.right)


def _calls(tree, names):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield position, node


def _renamed(node, name):
    node = copy.deepcopy(node)
    node.func.attr = name
    return node


def _mean_sum(tree):
    for position, node in _calls(tree, ("sum", "mean")):
        yield _at(position, lambda n: _renamed(n, "mean" if n.func.attr == "sum" else "sum"))


def _wrong_axis(tree):
    named = ("sum", "mean", "unsqueeze", "flip", "cumsum", "scatter", "scatter_add", "gather", "index_add", "amax", "amin", "norm", "softmax")
    for position, node in _calls(tree, named):
        places = [("args", k) for k, a in enumerate(node.args) if _integer(a) is not None]
        places += [("keywords", k) for k, a in enumerate(node.keywords) if a.arg == "dim" and _integer(a.value) is not None]
        for kind, k in places[:1]:

            def replace(n, kind=kind, k=k):
                n = copy.deepcopy(n)
                place = getattr(n, kind)
                old = _integer(place[k] if kind == "args" else place[k].value)
                new = ast.parse(str({0: 1, 1: 0, -1: 0}.get(old, 0)), mode="eval").body
                if kind == "args":
                    place[k] = new
                else:
                    place[k].value = new
                return n

            yield _at(position, replace)


def _integer(node):
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _drop_reduction(tree):
    for position, _ in _calls(tree, ("sum", "mean")):
        yield _at(position, lambda n: n.func.value)


def _swap_returns(tree):
    nodes = _nodes(tree)
    for position, node in enumerate(nodes):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for a, b in itertools.combinations(range(len(node.value.elts)), 2):

                def replace(n, a=a, b=b):
                    n = copy.deepcopy(n)
                    n.value.elts[a], n.value.elts[b] = n.value.elts[b], n.value.elts[a]
                    return n

                yield _at(position, replace)


def _transpose(tree):
    for position, _ in _calls(tree, ("t", "transpose")):
        yield _at(position, lambda n: n.func.value)


def _forget(tree):
    names = [a.arg for a in method_in(tree, "backward").args.args[1:]]
    for name in names:

        def change(changed, name=name):
            method = method_in(changed, "backward")
            method.body.insert(0, ast.parse(f"{name} = torch.ones_like({name})").body[0])
            return f"{name} = ones"

        yield change


def _save_wrong(tree):
    method = "setup_context" if any(isinstance(n, ast.FunctionDef) and n.name == "setup_context" for n in ast.walk(tree)) else "forward"
    function = method_in(tree, method)
    names = [a.arg for a in function.args.args if a.arg not in ("ctx", "inputs")]
    names += [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for position, node in enumerate(_nodes(tree, method)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "save_for_backward":
            for k, argument in enumerate(node.args):
                for name in dict.fromkeys(names):
                    if isinstance(argument, ast.Name) and argument.id != name:

                        def replace(n, k=k, name=name):
                            n = copy.deepcopy(n)
                            n.args[k] = ast.Name(name, ast.Load())
                            return n

                        yield _at(position, replace, method)


def _in_place(tree):
    name = method_in(tree, "backward").args.args[1].arg

    def change(changed):
        method = method_in(changed, "backward")
        method.body.insert(0, ast.parse(f"{name}.mul_(1.5)").body[0])
        method.body.insert(1, ast.parse(f"{name} = {name} / 1.5").body[0])
        return f"{name}.mul_(1.5)"

    yield change


def _constant(tree):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            parent = next(p for p in _nodes(tree) if any(child is node for child in ast.iter_child_nodes(p)))
            if isinstance(parent, ast.BinOp):
                yield _at(position, lambda n: ast.Constant(n.value + 1))


def _return_none(tree):
    for position in _elements(tree):
        yield _at(position, lambda n: ast.Constant(None))


def _drop_return(tree):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield _at(position, lambda n: ast.Return(ast.Tuple(copy.deepcopy(n.value.elts[:-1]), ast.Load())))


def _mask(tree):
    flips = {ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.GtE: ast.LtE, ast.LtE: ast.GtE, ast.Eq: ast.NotEq}
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Compare):
            yield _at(position, lambda n: ast.Compare(n.left, [flips[type(n.ops[0])]()], n.comparators))
    for position, _ in _calls(tree, ("where",)):
        yield _at(position, lambda n: ast.Call(n.func, [n.args[0], n.args[2], n.args[1]], []))


def _drop_argument(tree):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ctx":
            if node.attr in ("scale", "alpha", "beta", "strength", "p", "eps", "low", "high"):
                yield _at(position, lambda n: ast.Constant(1.0 if n.attr not in ("p", "eps") else 0.0))


def _needs(tree):
    for position, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "needs_input_grad":
            yield _at(position, lambda n: ast.Subscript(n.value, ast.Constant(1 - n.slice.value), n.ctx))


OPERATORS = {
    "sign": _sign,
    "mean/sum": _mean_sum,
    "swap returns": _swap_returns,
    "transpose": _transpose,
    "drop a factor": _drop_factor,
    "drop a term": _drop_term,
    "sign of a term": _term_sign,
    "wrong axis": _wrong_axis,
    "drop the reduction": _drop_reduction,
    "forget grad_output": _forget,
    "save the wrong tensor": _save_wrong,
    "modify in place": _in_place,
    "constant": _constant,
    "return None": _return_none,
    "drop a return": _drop_return,
    "mask": _mask,
    "drop an argument": _drop_argument,
    "needs_input_grad": _needs,
}

_count = itertools.count()


def built(text: str, name: str) -> type:
    """The class that a source text defines, with the source where `inspect` and `linecache` find it."""
    file = f"<mutant {next(_count)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = types.ModuleType("mutant")
    module.__dict__.update({k: v for k, v in vars(right).items() if not k.startswith("__")})
    exec(compile(text, file, "exec"), module.__dict__)
    return module.__dict__[name]


# -- the oracle -----------------------------------------------------------------------------------


def wrong_inputs(function: type, name: str) -> set[int] | None:
    """The inputs whose gradient through the engine is not that of autograd through forward; None where the engine raises.

    Several sizes of values, several constants, all inputs requiring grad and each alone.
    """
    reference = getattr(right, name)
    wrong: set[int] = set()
    for variant in range(3):
        values = _varied(right.INPUTS[name](), variant)
        floats = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.is_floating_point()]
        for chosen in [floats, *([k] for k in floats)] if variant == 0 else [floats]:
            try:
                got = _gradients(function, values, chosen, through=False)
            except Exception:
                return None
            want = _gradients(reference, values, chosen, through=True)
            wrong |= {k for k, a, b in zip(chosen, got, want, strict=True) if not torch.allclose(a, b, rtol=1e-7, atol=1e-9)}
    return wrong


def forward_works(function: type, name: str) -> bool:
    try:
        function.apply(*right.INPUTS[name]())
    except Exception:
        return False
    return True


def _varied(values: tuple, variant: int) -> tuple:
    if variant == 0:
        return values
    generator = torch.Generator().manual_seed(variant)
    out = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            out.append(value + 0.7 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
        elif isinstance(value, float):
            out.append(value * (1 + 0.1 * variant))
        else:
            out.append(value)
    return tuple(out)


def _gradients(function: type, values: tuple, chosen: list[int], through: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    leaves = {k: values[k].clone().requires_grad_() for k in chosen}
    passed = [leaves[k] * 1 if k in leaves else v.clone() if isinstance(v, torch.Tensor) else v for k, v in enumerate(values)]
    if not through:
        outputs = function.apply(*passed)
    elif function.setup_context is not torch.autograd.Function.setup_context:
        outputs = function.forward(*passed)
    else:
        outputs = function.forward(_Anything(), *passed)
    outputs = [o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o.is_floating_point()]
    generator = torch.Generator().manual_seed(5)
    grads = [torch.randn(o.shape, generator=generator, dtype=o.dtype) for o in outputs]
    kept = [g.clone() for g in grads]
    found = torch.autograd.grad(outputs, list(leaves.values()), grads, allow_unused=True)
    if not all(torch.equal(a, b) for a, b in zip(grads, kept, strict=True)):
        raise AssertionError("grad_output was written to")
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves.values(), strict=True)]


class _Anything:
    def save_for_backward(self, *_):
        pass

    mark_dirty = mark_non_differentiable = save_for_forward = save_for_backward
