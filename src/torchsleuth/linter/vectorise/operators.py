"""What calls mean over all turns of a loop: reductions get a `dim`, batched operations stay as they are."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise.context import integer, is_dotted
from torchsleuth.linter.vectorise.lifted import (
    INNER, ONE, GiveUp, Lifted, RankUnknown, aligned, converted, dims_argument, expression, literal, method, name, number,
)  # fmt: skip

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter

ELEMENTWISE = frozenset(
    "exp log sqrt abs neg sin cos tan tanh sigmoid relu gelu silu elu leaky_relu softplus square pow rsqrt floor ceil round "
    "sign clamp clamp_min clamp_max log1p log2 log10 expm1 reciprocal erf float double half long int bool isnan isinf "
    "isfinite maximum minimum where add sub mul div eq ne lt gt le ge logical_and logical_or logical_not clone relu6 "
    "hardtanh mish selu softsign atan2 sinh cosh asin acos atan fmod remainder lerp nan_to_num logaddexp exp2 trunc frac "
    "masked_fill type_as to contiguous detach multiply subtract divide true_divide absolute negative greater less "
    "greater_equal less_equal not_equal logsigmoid zeros_like ones_like full_like".split()
)
REDUCTIONS = frozenset(
    "sum mean prod amax amin max min std var norm any all argmax argmin logsumexp median nansum nanmean count_nonzero "
    "vector_norm".split()
)
SEVERAL_DIMS = frozenset("sum mean amax amin std var norm any all logsumexp nansum nanmean count_nonzero vector_norm".split())
ALONG = frozenset("softmax log_softmax cumsum cumprod flip softmin sort_values".split())
BATCHED_MODULES = {"Linear": 0, "LayerNorm": 0, "RMSNorm": 0, "Embedding": 1, "ReLU": 0, "GELU": 0, "Sigmoid": 0, "Tanh": 0,
                   "SiLU": 0, "ELU": 0, "LeakyReLU": 0, "Softplus": 0, "Identity": 0, "Hardtanh": 0, "ReLU6": 0, "SELU": 0,
                   "Mish": 0, "Hardswish": 0, "Hardsigmoid": 0}  # fmt: skip
LAST_DIM_MODULES = frozenset({"Linear", "LayerNorm", "RMSNorm"})
FUNCTIONAL = ("torch", "torch.nn.functional", "torch.linalg", "torch.special")
MATH = frozenset("sqrt exp log sin cos tan tanh fabs floor ceil log2 log10 log1p".split())


def call(lifter: Lifter, node: ast.Call) -> Lifted:
    prefix = _prefix(lifter, node)
    if prefix is not None:
        return prefix
    last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    sums = last in ("sum", "norm", "dot", "cosine_similarity", "dist", "pairwise_distance", "matmul", "vector_norm", "mse_loss")
    lifter.reducing += sums
    try:
        return _call(lifter, node)
    finally:
        lifter.reducing -= sums


def _call(lifter: Lifter, node: ast.Call) -> Lifted:
    func = node.func
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        raise GiveUp("a call with unpacked arguments")
    keywords = {k.arg: k.value for k in node.keywords}
    if isinstance(func, ast.Name) and not lifter.context.dotted(func).startswith("torch."):
        return _builtin(lifter, node, func.id, keywords)
    path = lifter.context.dotted(func) if is_dotted(func) else ""
    head, _, last = path.rpartition(".")
    if path.startswith("torch.") or (isinstance(func, ast.Name) and path.startswith("torch.")):
        if head not in FUNCTIONAL:
            raise GiveUp(f"`{path}` is not understood")
        return _function(lifter, node, last, keywords)
    if head == "math" and last in MATH and len(node.args) == 1:
        value = lifter.lift(node.args[0])
        if not value.axes:
            return replace(value, code=copy.deepcopy(node), kind="number")
        return replace(value, code=method(value.code, {"fabs": "abs"}.get(last, last)), kept=None)
    if isinstance(func, ast.Attribute):
        module = _module_class(lifter, func)
        if module is not None:
            return _module(lifter, node, func, module)
        return _method(lifter, node, func, keywords)
    raise GiveUp(f"the call `{ast.unparse(node)[:40]}` is not understood")


def _prefix(lifter: Lifter, node: ast.Call) -> Lifted | None:
    """`x[: i + 1].sum()` over all turns: a cumulative sum (mean, product, maximum, minimum)."""
    if not isinstance(node.func, ast.Attribute):
        return None
    last, args = node.func.attr, list(node.args)
    if last not in ("sum", "mean", "prod", "max", "min", "amax", "amin"):
        return None
    subject = args.pop(0) if lifter.context.dotted(node.func).startswith("torch.") and args else node.func.value
    if not (isinstance(subject, ast.Subscript) and isinstance(subject.slice, ast.Slice) and is_dotted(subject.value)):
        return None
    cut = subject.slice
    upper = lifter.loop_offset(cut.upper) if cut.upper is not None else None
    if cut.lower is not None or cut.step is not None or upper is None or upper[1] != 1 or upper[0].start != 0:
        return None
    dims = [k.value for k in node.keywords if k.arg == "dim"] or args
    text = ast.unparse(subject.value)
    if text in lifter.env or text in lifter.carried or text in lifter.written or len(node.keywords) > 1 or (dims and integer(dims[0]) != 0):
        return None
    if not dims and lifter.context.rank(text) is None and lifter.wanted_rank == 0:
        lifter.context.exact_ranks[text] = 1
        lifter.assume(f"`{text}` has 1 dimension")
    value = lifter.base(subject.value)
    if (not dims and (value.more or value.rank != 1)) or (dims and last in ("max", "min")):
        return None
    value = lifter.index(value, [name(upper[0].name)])
    how = {"sum": "cumsum", "mean": "cumsum", "prod": "cumprod", "max": "cummax", "amax": "cummax", "min": "cummin", "amin": "cummin"}[last]
    code = method(value.code, how, dim=number(0))
    if how in ("cummax", "cummin"):
        code = ast.Attribute(code, "values", ast.Load())
    out = replace(value, code=code, kept=None)
    if last == "mean":
        count = ast.BinOp(lifter.positions(upper[0]).code, ast.Add(), ast.Constant(1))
        counts = Lifted(count, (upper[0].name,), sizes=value.sizes[:1])
        return lifter.elementwise([out, counts], lambda a, b: ast.BinOp(a, ast.Div(), b))
    return out


def _module_class(lifter: Lifter, func: ast.Attribute) -> str | None:
    """The class of `self.layer` where `func` is that, None where it is a method of a value."""
    if isinstance(func.value, ast.Name) and func.value.id == "self":
        value = lifter.context.frame.attributes.get(func.attr)
        if value is not None and value.kind == "module":
            return value.path.rsplit(".", 1)[-1] if value.path.startswith("torch.nn.") else value.path
        raise GiveUp(f"`self.{func.attr}` is called, and what it does is not shown here")
    return None


def _module(lifter: Lifter, node: ast.Call, func: ast.Attribute, kind: str) -> Lifted:
    if kind not in BATCHED_MODULES:
        raise GiveUp(f"`{ast.unparse(func)}` is a {kind}, which need not treat a batch as it treats one item")
    if len(node.args) != 1 or node.keywords:
        raise GiveUp(f"`{ast.unparse(node)[:40]}` is called with more than one argument")
    value = lifter.lift(node.args[0])
    if kind == "LayerNorm":
        made = lifter.context.frame.attributes[func.attr].node
        first = made.args[0] if isinstance(made, ast.Call) and made.args else None
        if first is None or isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) != 1:
            raise GiveUp("a LayerNorm over several dimensions")
    lifter.modules[ast.unparse(func)] = kind
    if kind in LAST_DIM_MODULES:
        if not value.more and not value.rank:
            raise GiveUp(f"`{ast.unparse(func)}` on a single number")
        if not value.more and value.dims[-1] not in (INNER, ONE):
            value = loops_first(lifter, value)
        facts = lifter.bases.get(value.root)
        if facts is not None and value.more:
            facts["extra"] = max(facts["extra"], 1)
    if kind == "Embedding":
        lifter.mark_index(value, ("const", 7))
        dims, sizes = (*value.dims, INNER), (*value.sizes, None)
        if value.more:
            raise RankUnknown("an embedding of a tensor whose number of dimensions is unknown")
        return Lifted(ast.Call(func, [value.code], []), dims, False, sizes)
    sizes = value.sizes
    if kind == "Linear" and value.dims and not value.more:
        sizes = (*value.sizes[:-1], None)
    return Lifted(ast.Call(func, [value.code], []), value.dims, value.more, sizes, root=value.root)


def loops_first(lifter: Lifter, value: Lifted) -> Lifted:
    lead = tuple(a for a in lifter.order if a in value.axes)
    layout = (*lead, *(INNER,) * value.rank)
    plain = replace(value, dims=tuple(INNER if d == ONE else d for d in value.dims))
    if plain.dims == layout:
        return plain
    sizes = {d: s for d, s in zip(plain.dims, plain.sizes, strict=False) if d != INNER}
    inner = [s for d, s in zip(plain.dims, plain.sizes, strict=False) if d == INNER]
    code = converted(replace(plain, kept=None), layout, plain.more)
    return replace(plain, code=code, dims=layout, kept=None, sizes=(*(sizes.get(a) for a in lead), *inner))


# Functions and methods ----------------------------------------------------------------------------


def _function(lifter: Lifter, node: ast.Call, last: str, keywords: dict[str, ast.expr]) -> Lifted:
    if last in ("matmul", "dot", "inner", "mm", "bmm", "mv", "vdot") and len(node.args) == 2:
        rank = 1 if last in ("dot", "vdot") else None
        left, right = lifter.lift(node.args[0]), lifter.lift(node.args[1])
        return matmul(lifter, left, right, rank, (2, 1) if last == "mv" else (2, 2) if last == "mm" else None)
    if last == "stack" or last in ("cat", "concat", "tensor"):
        return _stacked(lifter, node, last, keywords)
    if last in ("dist", "pairwise_distance") and len(node.args) == 2 and not keywords:
        values = [lifter.lift(a) for a in node.args]
        _only_vectors(lifter, values)
        difference = lifter.elementwise(values, lambda a, b: ast.BinOp(a, ast.Sub(), b))
        return reduction(lifter, difference, "norm", [], {})
    if last == "cosine_similarity" and len(node.args) >= 2:
        dim = integer(keywords.get("dim", node.args[2] if len(node.args) > 2 else ast.Constant(1)))
        values = [lifter.lift(a) for a in node.args[:2]]
        _only_vectors(lifter, values)
        if dim not in (0, -1):
            raise GiveUp("cosine_similarity over another dimension")
        codes, layout, more, sizes = aligned([loops_first(lifter, v) for v in values], lifter.order, lifter.equal)
        code = ast.Call(copy.deepcopy(node.func), codes, [ast.keyword("dim", number(-1))])
        return Lifted(code, layout[:-1], False, sizes[:-1])
    if not node.args:
        if "input" in keywords:
            raise GiveUp(f"`{ast.unparse(node)[:40]}` is not understood")
        if last in ("zeros", "ones", "tensor"):
            return Lifted(copy.deepcopy(node), kind="free")
        raise GiveUp(f"`{ast.unparse(node)[:40]}` is not understood")
    if last in ("linear",) and len(node.args) in (2, 3):
        value = loops_first(lifter, lifter.lift(node.args[0]))
        others = [lifter.lift(a) for a in node.args[1:]]
        if any(o.axes for o in others):
            raise GiveUp("a weight that changes from turn to turn")
        return Lifted(ast.Call(node.func, [value.code, *(o.code for o in others)], []), value.dims, value.more, (*value.sizes[:-1], None))
    if last in ELEMENTWISE and last not in ("to", "float", "contiguous"):
        values = [lifter.lift(a) for a in node.args]
        extra = {k: lifter.lift(w) for k, w in keywords.items()}
        given = [*values, *extra.values()]
        if not any(v.axes for v in given):
            return Lifted(copy.deepcopy(node), kind="free")

        def build(*codes):
            named = [ast.keyword(k, c) for k, c in zip(extra, codes[len(values) :], strict=True)]
            return ast.Call(copy.deepcopy(node.func), list(codes[: len(values)]), named)

        if last == "where":
            return replace(lifter.elementwise(given, build), kind="tensor")
        return _dtyped(lifter.elementwise(given, build), last)
    value = lifter.lift(node.args[0])
    if not value.axes:
        return Lifted(copy.deepcopy(node), value.dims, value.more, value.sizes, "free") if value.kind == "free" else _invariant_result(lifter, node, value, last)
    if last in REDUCTIONS:
        if last in ("max", "min") and len(node.args) == 2 and integer(node.args[1]) is None:
            other = lifter.lift(node.args[1])
            function = "maximum" if last == "max" else "minimum"
            return lifter.elementwise([value, other], lambda a, b: method(name("torch"), function, a, b))
        return reduction(lifter, value, last, list(node.args[1:]), keywords)
    if last in ALONG:
        return _along(lifter, value, last, list(node.args[1:]), keywords, node.func)
    if last == "normalize":
        dim = integer(keywords.get("dim", ast.Constant(1)))
        if dim is None:
            raise GiveUp("normalize over an unknown dimension")
        place = value.inner_position(dim)
        rest = [ast.keyword(k, w) for k, w in keywords.items() if k != "dim"]
        return replace(value, code=ast.Call(copy.deepcopy(node.func), [value.code, *node.args[1:]], [*rest, ast.keyword("dim", number(place))]), kept=None)
    if last in STRUCTURE:
        return _structure(lifter, value, last, list(node.args[1:]), keywords)
    raise GiveUp(f"`torch…{last}` is not understood")


def _invariant_result(lifter: Lifter, node: ast.Call, value: Lifted, last: str) -> Lifted:
    if last in REDUCTIONS and len(node.args) == 1 and not node.keywords:
        return Lifted(copy.deepcopy(node), kind="number")
    return Lifted(copy.deepcopy(node), kind="free")


def _method(lifter: Lifter, node: ast.Call, func: ast.Attribute, keywords: dict[str, ast.expr]) -> Lifted:
    last = func.attr
    value = lifter.lift(func.value)
    if last in ("item", "cpu", "numpy", "tolist"):
        if last in ("numpy", "tolist"):
            raise GiveUp(f"`.{last}()` leaves torch")
        if last == "item":
            return replace(value, code=value.code if value.kind == "bool" else detached(value.code), kept=None)
        return value
    if last in ("size", "dim", "numel"):
        if last == "size" and len(node.args) == 1:
            return size_of(lifter, value, integer(node.args[0]))
        raise GiveUp(f"`.{last}()` in the loop is not understood")
    if not value.axes and value.kind in ("free", "number"):
        return Lifted(copy.deepcopy(node), kind="free")
    if last in ("matmul", "dot", "mm", "mv", "bmm", "inner") and len(node.args) == 1:
        return matmul(lifter, value, lifter.lift(node.args[0]), 1 if last == "dot" else None, (2, 1) if last == "mv" else None)
    if last in ("to", "float", "double", "long", "int", "half", "bool", "contiguous", "detach", "clone"):
        out = replace(value, code=ast.Call(ast.Attribute(value.code, last, ast.Load()), copy.deepcopy(node.args), copy.deepcopy(node.keywords)), kept=None)
        return _dtyped(out, last)
    if last in ELEMENTWISE:
        others = [lifter.lift(a) for a in node.args]
        extra = {k: lifter.lift(w) for k, w in keywords.items()}

        def build(first, *codes):
            named = [ast.keyword(k, c) for k, c in zip(extra, codes[len(others) :], strict=True)]
            return ast.Call(ast.Attribute(first, last, ast.Load()), list(codes[: len(others)]), named)

        return _dtyped(lifter.elementwise([value, *others, *extra.values()], build), last)
    if last in REDUCTIONS:
        if last in ("max", "min") and len(node.args) == 1 and integer(node.args[0]) is None:
            other = lifter.lift(node.args[0])
            function = "maximum" if last == "max" else "minimum"
            return lifter.elementwise([value, other], lambda a, b: method(a, function, b))
        return reduction(lifter, value, last, list(node.args), keywords)
    if last in ALONG:
        return _along(lifter, value, last, list(node.args), keywords, None)
    if last in STRUCTURE:
        return _structure(lifter, value, last, list(node.args), keywords)
    raise GiveUp(f"`.{last}()` is not understood")


def detached(code: ast.expr) -> ast.expr:
    return method(code, "detach")


def _dtyped(value: Lifted, last: str) -> Lifted:
    if last in ("bool", "isnan", "isinf", "isfinite", "eq", "ne", "lt", "gt", "le", "ge", "logical_and", "logical_or",
                "logical_not", "greater", "less", "greater_equal", "less_equal", "not_equal"):  # fmt: skip
        return replace(value, kind="bool", kept=None)
    return value


def _builtin(lifter: Lifter, node: ast.Call, function: str, keywords: dict[str, ast.expr]) -> Lifted:
    if keywords:
        raise GiveUp(f"`{function}` with keywords")
    if function in ("float", "int", "bool") and len(node.args) == 1:
        if isinstance(node.args[0], ast.Constant):
            return Lifted(copy.deepcopy(node), kind="number", is_constant=True)
        value = lifter.lift(node.args[0])
        if not value.axes:
            return replace(value, code=copy.deepcopy(node), kind="number")
        if function == "int":
            return value if value.kind in ("index", "bool") or _is_index(lifter, value) else replace(value, code=method(detached(value.code), "long"), kept=None)
        if function == "bool":
            return replace(value, code=method(value.code, "bool"), kind="bool", kept=None)
        return replace(value, code=method(value.code, "float") if value.kind in ("bool", "index") else detached(value.code), kept=None, kind="tensor")
    if function == "abs" and len(node.args) == 1:
        value = lifter.lift(node.args[0])
        return replace(value, code=method(value.code, "abs"), kept=None) if value.axes else Lifted(copy.deepcopy(node), kind="number")
    if function in ("max", "min") and len(node.args) == 2:
        lifter.mark_scalars(node)
        values = [lifter.lift(a) for a in node.args]
        if not any(v.axes for v in values):
            return Lifted(copy.deepcopy(node), kind="number")
        if any(v.kind == "number" for v in values):
            tensor, bound = (values[0], values[1]) if values[1].kind == "number" else (values[1], values[0])
            key = "min" if function == "max" else "max"
            return replace(tensor, code=method(tensor.code, "clamp", **{key: bound.code}), kept=None)
        torch_function = "maximum" if function == "max" else "minimum"
        return lifter.elementwise(values, lambda a, b: method(name("torch"), torch_function, a, b))
    if function == "len" and len(node.args) == 1:
        if is_dotted(node.args[0]) and ast.unparse(node.args[0]) not in lifter.env:
            return Lifted(copy.deepcopy(node), kind="number")
        return size_of(lifter, lifter.lift(node.args[0]), 0)
    if function in ("sum", "pow") and len(node.args) == 1 and function == "sum":
        value = lifter.lift(node.args[0])
        if value.axes and (value.rank or value.more):
            return reduction(lifter, value, "sum", [ast.Constant(0)], {})
    raise GiveUp(f"`{function}()` is called, and what it does is not shown here")


def _is_index(lifter: Lifter, value: Lifted) -> bool:
    return isinstance(value.code, (ast.Name, ast.Subscript))


def size_of(lifter: Lifter, value: Lifted, dim: int | None) -> Lifted:
    if dim is None:
        raise GiveUp("a size of an unknown dimension")
    place = value.inner_position(dim)
    return Lifted(ast.Subscript(ast.Attribute(value.code, "shape", ast.Load()), number(place), ast.Load()), kind="number")


# Reductions ---------------------------------------------------------------------------------------


def reduction(lifter: Lifter, value: Lifted, last: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Lifted:
    keywords = dict(keywords)
    keepdim = keywords.pop("keepdim", None)
    keepdim = isinstance(keepdim, ast.Constant) and keepdim.value is True
    dim_node = keywords.pop("dim", None)
    if last in ("norm", "vector_norm") and args:
        keywords.setdefault("p" if last == "norm" else "ord", args.pop(0))
    if dim_node is None and args:
        dim_node = args.pop(0)
    if args:
        raise GiveUp(f"`{last}` with {len(args)} more arguments")
    extra = {}
    for key, word in keywords.items():
        lifted = lifter.lift(word) if not isinstance(word, ast.Constant) and not isinstance(word, ast.Attribute) else None
        if lifted is not None and lifted.axes:
            raise GiveUp(f"`{last}` with a `{key}` that changes from turn to turn")
        extra[key] = copy.deepcopy(word)
    if dim_node is None:
        return _full_reduction(lifter, value, last, extra)
    inner = _dim_list(dim_node)
    if inner is None:
        raise GiveUp(f"`{last}` over an unknown dimension")
    places = [value.inner_position(d) for d in inner]
    if last in ("max", "min", "median"):
        raise GiveUp(f"`{last}(dim=…)` gives a pair")
    keep = {"keepdim": ast.Constant(True)} if keepdim else {}
    code = method(value.code, last, dim=dims_argument(places), **extra, **keep)
    if any(p < 0 for p in places):
        facts = lifter.bases.get(value.root)
        if facts is not None:
            facts["extra"] = max(facts["extra"], max(-p for p in places) + (0 if value.rank == 0 else 0))
        if keepdim:
            return replace(value, code=code, kept=None)
        return replace(value, code=code, kept=None)
    if keepdim:
        return replace(value, code=code, kept=None, sizes=tuple(None if p in places else s for p, s in enumerate(value.sizes)))
    if value.more and any(p >= len(value.dims) for p in places):
        facts = lifter.bases.get(value.root)
        if facts is not None:
            facts["extra"] = max(facts["extra"], max(places) - len(value.dims) + 1)
        return replace(value, code=code, kept=None)
    dims = tuple(d for p, d in enumerate(value.dims) if p not in places)
    sizes = tuple(s for p, s in enumerate(value.sizes) if p not in places)
    kept = None
    if not value.more:
        kept_code = method(value.code, last, dim=dims_argument(places), **extra, keepdim=True)
        kept = (kept_code, tuple(ONE if p in places else d for p, d in enumerate(value.dims)))
    return Lifted(code, dims, value.more, sizes, "tensor" if last not in ("any", "all") else "bool", kept=kept, root=value.root if value.more else "")


def _full_reduction(lifter: Lifter, value: Lifted, last: str, extra: dict[str, ast.expr]) -> Lifted:
    last = {"max": "amax", "min": "amin"}.get(last, last)
    kind = "bool" if last in ("any", "all") else "tensor"
    if value.more:
        facts = lifter.bases.get(value.root)
        if facts is not None:
            facts["extra"] = max(facts["extra"], 1)
        lead = len(value.dims)
        if last in SEVERAL_DIMS and len(value.axes) == 1 and value.dims[0] == INNER and value.is_root:
            # x[:, c].min(): over every dimension but the loop's, however many there are
            place = value.dims.index(value.axes[0])
            over = expression(f"tuple(d for d in range({ast.unparse(value.code)}.ndim) if d != {place})")
            kept = (method(value.code, last, dim=over, **extra, keepdim=True), tuple(ONE if d == INNER else d for d in value.dims))
            return Lifted(method(value.code, last, dim=over, **extra), value.axes, False, (value.sizes[place],), kind, kept=kept, kept_more=True, root=value.root)
        if any(d in (INNER, ONE) for d in value.dims):
            value = loops_first(lifter, value)
        start = len(value.axes)
        code = method(method(value.code, "flatten", number(start)), last, dim=number(start), **extra)
        kept = None
        if last in SEVERAL_DIMS and value.is_root:
            over = expression(f"tuple(range({start}, {ast.unparse(value.code)}.ndim))")
            kept = (method(value.code, last, dim=over, **extra, keepdim=True), value.axes)
        whole = method(value.code, "sum") if last == "sum" and not extra else None
        return Lifted(code, value.axes, False, value.sizes[:start], kind, kept=kept, kept_more=kept is not None and lead == start, root=value.root, whole=whole)
    places = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
    if not places:
        if last in ("sum", "mean", "amax", "amin", "prod"):
            return value
        if last == "norm":
            return replace(value, code=method(value.code, "abs"), kept=None)
        raise GiveUp(f"`{last}` of a single number")
    dims = tuple(d for d in value.dims if d not in (INNER, ONE))
    sizes = tuple(s for p, s in enumerate(value.sizes) if p not in places)
    if len(places) > 1 and last not in SEVERAL_DIMS:
        if places != list(range(places[0], places[-1] + 1)):
            raise GiveUp(f"`{last}` over dimensions that are not next to one another")
        flat = method(value.code, "flatten", number(places[0]), number(places[-1]))
        return Lifted(method(flat, last, dim=number(places[0]), **extra), dims, False, sizes, kind)
    if last == "median":
        return Lifted(ast.Attribute(method(value.code, "median", dim=number(places[0])), "values", ast.Load()), dims, False, sizes)
    if last == "norm" and not extra:
        apart = _cdist(lifter, value, places)
        if apart is not None:
            return Lifted(apart, dims, False, sizes)
    code = method(value.code, last, dim=dims_argument(places), **extra)
    kept = (method(value.code, last, dim=dims_argument(places), **extra, keepdim=True),
            tuple(ONE if p in places else d for p, d in enumerate(value.dims)))  # fmt: skip
    whole = method(value.code, "sum") if last == "sum" and not extra else None
    return Lifted(code, dims, False, sizes, kind, kept=kept, whole=whole)


def _cdist(lifter: Lifter, value: Lifted, places: list[int]) -> ast.expr | None:
    """`(x[:, None] - y).norm(dim=2)` is `torch.cdist(x, y)`, without the tensor of all differences."""
    code = value.code
    if len(value.dims) != 3 or places != [2] or not isinstance(code, ast.BinOp) or not isinstance(code.op, ast.Sub):
        return None
    left, right = ast.unparse(code.left), ast.unparse(code.right)
    if left.endswith("[:, None]") and "[" not in right and "(" not in right:
        first, second = left.removesuffix("[:, None]"), right
    else:
        return None
    if "(" in first or "[" in first:
        return None
    return expression(f"torch.cdist({first}, {second}, compute_mode='donot_use_mm_for_euclid_dist')")


def _dim_list(node: ast.expr) -> list[int] | None:
    if isinstance(node, (ast.Tuple, ast.List)):
        dims = [integer(e) for e in node.elts]
        return dims if None not in dims and dims else None
    dim = integer(node)
    return [dim] if dim is not None else None


def pair_part(lifter: Lifter, node: ast.Call, part: str, optional: bool = False) -> Lifted | None:
    """`row.max(dim=0).values`, `torch.max(row, 0)[1]`, `row.sort().values`."""
    if not isinstance(node.func, ast.Attribute):
        if optional:
            return None
        raise GiveUp(f"`{ast.unparse(node)[:40]}` is not understood")
    last = node.func.attr
    if last not in ("max", "min", "median", "sort", "topk", "cummax", "cummin", "kthvalue"):
        if optional:
            return None
        raise GiveUp(f"`.{part}` of `{last}` is not understood")
    path = lifter.context.dotted(node.func)
    args = list(node.args)
    value = lifter.lift(args.pop(0) if path.startswith("torch.") else node.func.value)
    keywords = {k.arg: k.value for k in node.keywords}
    leading = [args.pop(0)] if last in ("topk", "kthvalue") and args else []
    dim = integer(keywords.pop("dim", args.pop(0) if args else ast.Constant(-1)))
    if dim is None or args:
        raise GiveUp(f"`{last}` over an unknown dimension")
    place = value.inner_position(dim)
    extra = {k: copy.deepcopy(w) for k, w in keywords.items()}
    code = ast.Attribute(method(value.code, last, *leading, dim=number(place), **extra), part, ast.Load())
    if last in ("sort", "topk", "cummax", "cummin"):
        return replace(value, code=code, kept=None, sizes=tuple(None if p == place else s for p, s in enumerate(value.sizes)))
    if value.more and (place < 0 or place >= len(value.dims)):
        facts = lifter.bases.get(value.root)
        if facts is not None:
            facts["extra"] = max(facts["extra"], 1)
        return replace(value, code=code, kept=None)
    keep = [p for p in range(len(value.dims)) if p != place]
    return Lifted(code, tuple(value.dims[p] for p in keep), value.more, tuple(value.sizes[p] for p in keep if p < len(value.sizes)))


def _along(lifter: Lifter, value: Lifted, last: str, args: list[ast.expr], keywords: dict, func: ast.expr | None) -> Lifted:
    node = keywords.pop("dim", args[0] if args else None)
    dims = _dim_list(node) if node is not None else None
    if dims is None or keywords:
        raise GiveUp(f"`{last}` over an unknown dimension")
    places = [value.inner_position(d) for d in dims]
    facts = lifter.bases.get(value.root)
    if facts is not None and value.more:
        facts["extra"] = max(facts["extra"], 1)
    if func is not None:
        code = ast.Call(copy.deepcopy(func), [value.code], [ast.keyword("dim" if last != "flip" else "dims", dims_argument(places))])
    else:
        code = method(value.code, last, **{"dim" if last != "flip" else "dims": dims_argument(places)})
    return replace(value, code=code, kept=None)


STRUCTURE = frozenset("unsqueeze squeeze transpose t flatten view reshape".split())


def _structure(lifter: Lifter, value: Lifted, last: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Lifted:
    if last == "unsqueeze":
        dim = integer(keywords.get("dim", args[0] if args else ast.Constant(None)))
        if dim is None:
            raise GiveUp("unsqueeze at an unknown place")
        return _unsqueezed(value, dim)
    if last == "squeeze" and len(args) + len(keywords) == 1:
        dim = integer(keywords.get("dim", args[0] if args else ast.Constant(None)))
        if dim is None or value.more:
            raise RankUnknown("squeeze of a tensor whose number of dimensions is unknown")
        place = value.inner_position(dim)
        keep = [p for p in range(len(value.dims)) if p != place]
        return Lifted(method(value.code, "squeeze", number(place)), tuple(value.dims[p] for p in keep), False,
                      tuple(value.sizes[p] for p in keep if p < len(value.sizes)))  # fmt: skip
    if last == "transpose" and len(args) == 2:
        return transposed(lifter, value, integer(args[0]), integer(args[1]))
    if last == "t" and not args:
        return transposed(lifter, value, 0, 1)
    if last in ("flatten",) and not args and not keywords or (last in ("view", "reshape") and len(args) == 1 and integer(args[0]) == -1):
        if value.more:
            value = loops_first(lifter, value)
            start = len(value.axes)
            facts = lifter.bases.get(value.root)
            if facts is not None:
                facts["extra"] = max(facts["extra"], 1)
            return Lifted(method(value.code, "flatten", number(start)), (*value.axes, INNER), False, (*value.sizes[:start], None))
        value = loops_first(lifter, value)
        start = len(value.axes)
        if value.rank == 1:
            return value
        if value.rank == 0:
            return _unsqueezed(value, 0)
        return Lifted(method(value.code, "flatten", number(start)), (*value.axes, INNER), False, (*value.sizes[:start], None))
    raise GiveUp(f"`{last}` changes the shape in a way that is not understood")


def _unsqueezed(value: Lifted, dim: int) -> Lifted:
    places = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
    if value.more:
        if dim >= 0 and dim <= len(places):
            place = places[dim] if dim < len(places) else len(value.dims)
        elif dim == -1:
            return replace(value, code=method(value.code, "unsqueeze", number(-1)), kept=None)
        else:
            raise RankUnknown("unsqueeze of a tensor whose number of dimensions is unknown")
    else:
        index = dim if dim >= 0 else dim + len(places) + 1
        if not 0 <= index <= len(places):
            raise GiveUp("unsqueeze out of range")
        place = places[index] if index < len(places) else len(value.dims)
    dims = (*value.dims[:place], INNER, *value.dims[place:])
    sizes = (*value.sizes[:place], None, *value.sizes[place:])
    shown = -1 if place == len(value.dims) and not value.more else place
    return Lifted(method(value.code, "unsqueeze", number(shown)), dims, value.more, sizes, root=value.root)


def transposed(lifter: Lifter, value: Lifted, first: int | None, second: int | None) -> Lifted:
    if first is None or second is None or value.more:
        raise RankUnknown("transpose of a tensor whose number of dimensions is unknown")
    a, b = value.inner_position(first), value.inner_position(second)
    dims = list(value.dims)
    dims[a], dims[b] = dims[b], dims[a]
    sizes = list(value.sizes)
    if a < len(sizes) and b < len(sizes):
        sizes[a], sizes[b] = sizes[b], sizes[a]
    return Lifted(method(value.code, "transpose", number(a), number(b)), tuple(dims), False, tuple(sizes))


# Products -----------------------------------------------------------------------------------------


def _only_vectors(lifter: Lifter, values: list[Lifted]) -> None:
    """Each of these is a vector in every turn: that settles the number of dimensions of its tensor."""
    for place, value in enumerate(values):
        if value.more:
            values[place] = ranked(lifter, value, 1)
        elif value.rank != 1:
            raise GiveUp("vectors were expected")


def ranked(lifter: Lifter, value: Lifted, rank: int) -> Lifted:
    """`value` with its unknown number of own dimensions settled."""
    missing = rank - value.rank
    if missing < 0:
        raise GiveUp("a number of dimensions that does not fit")
    if value.is_root:
        lifter.context.exact_ranks[value.root] = len(value.dims) + missing
        if value.root in lifter.bases:
            lifter.bases[value.root]["rank"] = len(value.dims) + missing
        sizes = tuple(lifter.context.canonical(("size", value.root, len(value.dims) + d)) for d in range(missing))
    else:
        sizes = (None,) * missing
    return replace(value, dims=(*value.dims, *(INNER,) * missing), more=False, sizes=(*value.sizes, *sizes), kept=None)


def matmul(lifter: Lifter, left: Lifted, right: Lifted, rank: int | None = None, ranks: tuple[int, int] | None = None) -> Lifted:
    values = [_as_tensor(lifter, left), _as_tensor(lifter, right)]
    if not values[0].axes and not values[1].axes:
        return Lifted(ast.BinOp(left.code, ast.MatMult(), right.code), kind="free")
    wanted = ranks or ((rank, rank) if rank is not None else None)
    if wanted is None and lifter.wanted_rank == 0:
        wanted = (1, 1)
    elif wanted is None and lifter.wanted_rank == 1 and bool(values[0].axes) != bool(values[1].axes):
        wanted = (1, 2) if values[0].axes else (2, 1)
    for place in (0, 1):
        if values[place].more:
            if wanted is None:
                if place == 0 and not values[1].axes and not values[0].rank and values[0].dims and (values[1].more or values[1].rank <= 2):
                    return _open_product(lifter, values[0], values[1])
                else:
                    raise RankUnknown("a product of tensors whose number of dimensions is unknown")
            values[place] = ranked(lifter, values[place], wanted[place])
    a, b = (loops_first(lifter, v) for v in values)
    if not a.rank or not b.rank:
        raise GiveUp("a product with a single number")
    if len(a.sizes) == len(a.dims) and len(b.sizes) == len(b.dims):
        lifter.equal.join(a.sizes[-1], b.sizes[-1 if b.rank == 1 else -2])
    if (a.rank, b.rank) == (1, 1):
        if not b.axes:
            return Lifted(ast.BinOp(a.code, ast.MatMult(), b.code), a.dims[:-1], False, a.sizes[:-1])
        if not a.axes:
            return Lifted(ast.BinOp(b.code, ast.MatMult(), a.code), b.dims[:-1], False, b.sizes[:-1])
        if len(a.axes) == len(b.axes) == 1 and a.axes != b.axes:
            if lifter.order.index(a.axes[0]) > lifter.order.index(b.axes[0]):
                a, b = b, a
            return Lifted(ast.BinOp(a.code, ast.MatMult(), ast.Attribute(b.code, "T", ast.Load())), (a.dims[0], b.dims[0]), False, (a.sizes[0], b.sizes[0]))
        product = lifter.elementwise([a, b], lambda x, y: ast.BinOp(x, ast.Mult(), y))
        return reduction(lifter, product, "sum", [], {})
    if (a.rank, b.rank) == (1, 2) and not b.axes:
        return Lifted(ast.BinOp(a.code, ast.MatMult(), b.code), a.dims, False, (*a.sizes[:-1], b.sizes[-1] if b.sizes else None))
    if (a.rank, b.rank) == (2, 1) and not a.axes:
        return Lifted(ast.BinOp(b.code, ast.MatMult(), ast.Attribute(a.code, "T", ast.Load())), b.dims, False, (*b.sizes[:-1], a.sizes[0] if a.sizes else None))
    if (a.rank, b.rank) == (2, 2) and (a.axes == b.axes or not b.axes or not a.axes):
        axes = a.axes or b.axes
        return Lifted(ast.BinOp(a.code, ast.MatMult(), b.code), (*axes, INNER, INNER), False, (*(a if a.axes else b).sizes[:-2], a.sizes[-2] if len(a.sizes) > 1 else None, b.sizes[-1] if b.sizes else None))
    if (a.rank, b.rank) == (2, 1) and a.axes == b.axes:
        code = method(ast.BinOp(a.code, ast.MatMult(), method(b.code, "unsqueeze", number(-1))), "squeeze", number(-1))
        return Lifted(code, (*a.axes, INNER), False, (*a.sizes[:-1],))
    if (a.rank, b.rank) == (1, 2) and a.axes == b.axes:
        code = method(ast.BinOp(method(a.code, "unsqueeze", number(-2)), ast.MatMult(), b.code), "squeeze", number(-2))
        return Lifted(code, (*a.axes, INNER), False, (*a.sizes[:-1], b.sizes[-1] if b.sizes else None))
    raise GiveUp("a product that is not understood")


def _open_product(lifter: Lifter, left: Lifted, right: Lifted) -> Lifted:
    """`x[i] @ w` with a fixed `w` of one or two dimensions: `x @ w`, however many dimensions `x` has."""
    facts = lifter.bases.get(left.root)
    if facts is not None:
        facts["extra"] = max(facts["extra"], 1)
    if not right.more and right.rank == 1:
        return replace(ranked(lifter, left, 1), code=ast.BinOp(left.code, ast.MatMult(), right.code), dims=left.dims, sizes=left.sizes)
    right_facts = lifter.bases.get(right.root)
    if right_facts is not None and right_facts["rank"] is None:
        right_facts["rank"] = 2
        lifter.context.exact_ranks[right.root] = 2
        lifter.assume(f"`{right.root}` is a matrix")
    return replace(left, code=ast.BinOp(left.code, ast.MatMult(), right.code), kept=None)


def _as_tensor(lifter: Lifter, value: Lifted) -> Lifted:
    if value.kind == "free" and is_dotted(value.code):
        lifter.numbers.discard(ast.unparse(value.code))
        return lifter.base(value.code)
    return value


# Lists of results ---------------------------------------------------------------------------------


def _stacked(lifter: Lifter, node: ast.Call, last: str, keywords: dict[str, ast.expr]) -> Lifted:
    from torchsleuth.linter.vectorise.lift import Gathered

    if not node.args:
        raise GiveUp(f"`{last}` of nothing")
    dim = integer(keywords.get("dim", node.args[1] if len(node.args) > 1 else ast.Constant(0)))
    first = node.args[0]
    if isinstance(first, ast.Name) and isinstance(lifter.env.get(first.id), Gathered):
        gathered = lifter.env[first.id]
        return collected(lifter, gathered, last, dim)
    if isinstance(first, (ast.List, ast.Tuple)) and last == "stack" and dim is not None:
        values = [lifter.lift(e) for e in first.elts]
        if not any(v.axes for v in values):
            raise GiveUp("a stack that does not depend on the loop")
        codes, layout, more, sizes = aligned([loops_first(lifter, v) if not v.more else v for v in values], lifter.order, lifter.equal)
        if more:
            raise RankUnknown("a stack of tensors whose number of dimensions is unknown")
        rank = sum(d == INNER for d in layout)
        place = len(layout) - rank + (dim if dim >= 0 else dim + rank + 1)
        code = ast.Call(copy.deepcopy(node.func), [ast.List(codes, ast.Load())], [ast.keyword("dim", number(place))])
        return Lifted(code, (*layout[:place], INNER, *layout[place:]), False, (*sizes[:place], None, *sizes[place:]))
    if last == "tensor" and isinstance(first, (ast.Constant, ast.UnaryOp)):
        return Lifted(copy.deepcopy(node), kind="number")
    raise GiveUp(f"`{ast.unparse(node)[:40]}` in the loop is not understood")


def collected(lifter: Lifter, gathered, last: str, dim: int | None) -> Lifted:
    """The tensor that stacking the gathered elements gives: the loop's dimension becomes one of its own."""
    value = gathered.element
    if value is None or dim is None:
        raise GiveUp("an empty list is stacked")
    axis = gathered.axes[-1]
    if last in ("cat", "concat", "hstack", "vstack"):
        raise GiveUp("the pieces are concatenated, not stacked")
    if axis not in value.axes:
        raise GiveUp("the same value is gathered in every turn")
    return unlooped(value, axis, dim)


def unlooped(value: Lifted, axis: str, dim: int) -> Lifted:
    """`value` with the dimension of a finished loop as its own dimension `dim`."""
    own = value.dims.index(axis)
    if value.more:
        if dim < 0:
            code = method(value.code, "movedim", number(own), number(dim)) if not (own == len(value.dims) - 1 and False) else value.code
            return replace(value, code=code, dims=tuple(d for p, d in enumerate(value.dims) if p != own), kept=None, sizes=tuple(s for p, s in enumerate(value.sizes) if p != own))
        others = [d for p, d in enumerate(value.dims) if p != own]
        places = [p for p, d in enumerate(others) if d in (INNER, ONE)]
        target = places[dim] if dim < len(places) else len(others) + dim - len(places)
        code = value.code if target == own else method(value.code, "movedim", number(own), number(target))
        if target <= len(others):
            others.insert(target, INNER)
            return replace(value, code=code, dims=tuple(others), kept=None, sizes=(None,) * len(others))
        return replace(value, code=code, dims=tuple(others), kept=None, sizes=(None,) * len(others))
    others = [d for p, d in enumerate(value.dims) if p != own]
    places = [p for p, d in enumerate(others) if d in (INNER, ONE)]
    index = dim if dim >= 0 else dim + len(places) + 1
    if not 0 <= index <= len(places):
        raise GiveUp("stacked along a dimension that does not exist")
    # Where the loop's dimension may stand among the other loops' without changing the inner order.
    lower = places[index - 1] + 1 if index > 0 else 0
    upper = places[index] if index < len(places) else len(others)
    if lower <= own <= upper:
        dims = tuple(INNER if p == own else d for p, d in enumerate(value.dims))
        return replace(value, dims=dims, kept=None)
    target = upper
    size = value.sizes[own] if own < len(value.sizes) else None
    sizes = [s for p, s in enumerate(value.sizes) if p != own]
    order = [p for p in range(len(value.dims)) if p != own]
    order.insert(target, own)
    from torchsleuth.linter.vectorise.lifted import permuted

    others.insert(target, INNER)
    sizes.insert(target, size)
    return replace(value, code=permuted(value.code, order), dims=tuple(others), sizes=tuple(sizes), kept=None)


def literal_dims(places: list[int]) -> ast.expr:
    return literal(places[0] if len(places) == 1 else tuple(places))
