"""What calls mean over all turns of a loop: reductions get a `dim`, batched operations stay as they are."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.values import RANDOM
from torchsleuth.linter.vectorise.context import integer, is_dotted
from torchsleuth.linter.vectorise.lifted import INNER, ONE, GiveUp, Lifted, RankUnknown, aligned, method, name, number
from torchsleuth.linter.vectorise.products import OF_A_MATRIX, matmul, of_matrices, only_vectors, outer
from torchsleuth.linter.vectorise.pythonic import builtin, detached, one_number
from torchsleuth.linter.vectorise.reductions import ALONG, REDUCTIONS, along, pair_part, prefix_reduction, reduction
from torchsleuth.linter.vectorise.shapes import STRUCTURE, loops_first, ranked, size_of, structured, transposed, unlooped
from torchsleuth.linter.vectorise.stacks import collected, stacked

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
BATCHED_MODULES = {"Linear": 0, "LayerNorm": 0, "RMSNorm": 0, "Embedding": 1, "ReLU": 0, "GELU": 0, "Sigmoid": 0, "Tanh": 0,
                   "SiLU": 0, "ELU": 0, "LeakyReLU": 0, "Softplus": 0, "Identity": 0, "Hardtanh": 0, "ReLU6": 0, "SELU": 0,
                   "Mish": 0, "Hardswish": 0, "Hardsigmoid": 0}  # fmt: skip
LAST_DIM_MODULES = frozenset({"Linear", "LayerNorm", "RMSNorm"})
FUNCTIONAL = ("torch", "torch.nn.functional", "torch.linalg", "torch.special")
MAKERS = frozenset({"eye", "arange", "linspace", "logspace", "zeros", "ones", "empty", "full"})
MATH = frozenset("sqrt exp log sin cos tan tanh fabs floor ceil log2 log10 log1p".split())


def call(lifter: Lifter, node: ast.Call) -> Lifted:
    prefix = prefix_reduction(lifter, node)
    if prefix is not None:
        return prefix
    last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    sums = last in ("sum", "norm", "dot", "cosine_similarity", "dist", "pairwise_distance", "matmul", "vector_norm", "mse_loss", "l1_loss")
    sums = sums and not _names_dim(lifter, node, last)
    lifter.reducing += sums
    lifter.product_rank, outer_rank = lifter.wanted_rank, lifter.wanted_rank
    if last not in ELEMENTWISE and not isinstance(node.func, ast.Name):
        lifter.wanted_rank = None
    try:
        return _call(lifter, node)
    finally:
        lifter.reducing -= sums
        lifter.wanted_rank = outer_rank


def _names_dim(lifter: Lifter, node: ast.Call, last: str) -> bool:
    """`sum(dim=1)`, `torch.sum(x, 1)`: not over everything."""
    if any(k.arg in ("dim", "axis", "reduction") for k in node.keywords):
        return True
    given = len(node.args) - lifter.context.dotted(node.func).startswith("torch.")
    return last in ("sum", "norm", "vector_norm") and given > (last != "sum")


def _call(lifter: Lifter, node: ast.Call) -> Lifted:
    func = node.func
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        raise GiveUp("a call with unpacked arguments")
    keywords = {{"axis": "dim", "keepdims": "keepdim"}.get(k.arg, k.arg): k.value for k in node.keywords}
    if isinstance(func, ast.Name) and not lifter.context.dotted(func).startswith("torch."):
        return builtin(lifter, node, func.id, keywords)
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


# Functions and methods ----------------------------------------------------------------------------


def _function(lifter: Lifter, node: ast.Call, last: str, keywords: dict[str, ast.expr]) -> Lifted:
    if last in RANDOM:
        raise GiveUp(f"`{ast.unparse(node)[:40]}` draws new numbers in every turn")
    if last in ("matmul", "dot", "inner", "mm", "bmm", "mv", "vdot") and len(node.args) == 2:
        rank = 1 if last in ("dot", "vdot") else None
        asked = lifter.product_rank
        left, right = lifter.lift(node.args[0]), lifter.lift(node.args[1])
        lifter.product_rank = asked
        return matmul(lifter, left, right, rank, (2, 1) if last == "mv" else (2, 2) if last == "mm" else None)
    if last in ("outer", "ger") and len(node.args) == 2:
        return outer(lifter, [lifter.lift(a) for a in node.args])
    if last == "stack" or last in ("cat", "concat", "tensor"):
        return stacked(lifter, node, last, keywords)
    if last in ("dist", "pairwise_distance") and len(node.args) == 2 and not keywords:
        values = [lifter.lift(a) for a in node.args]
        only_vectors(lifter, values)
        difference = lifter.elementwise(values, lambda a, b: ast.BinOp(a, ast.Sub(), b))
        return reduction(lifter, difference, "norm", [], {})
    if last in ("mse_loss", "l1_loss") and len(node.args) == 2 and not keywords:
        values = [lifter.lift(a) for a in node.args]
        difference = lifter.elementwise(values, lambda a, b: ast.BinOp(a, ast.Sub(), b))
        apart = replace(difference, code=method(difference.code, "square" if last == "mse_loss" else "abs"), kept=None)
        if not apart.more and not apart.rank:
            return apart  # a loss of single numbers
        if not apart.more:
            return reduction(lifter, apart, "mean", [], {})
        # Single numbers or rows, nothing says which: one more dimension serves both.
        extra = {base: facts["extra"] for base, facts in lifter.bases.items()}
        mean = reduction(lifter, replace(apart, code=method(apart.code, "unsqueeze", number(-1))), "mean", [], {})
        for base, facts in lifter.bases.items():
            facts["extra"] = extra[base]
        return mean
    if last == "cosine_similarity" and len(node.args) >= 2:
        dim = integer(keywords.get("dim", node.args[2] if len(node.args) > 2 else ast.Constant(1)))
        values = [lifter.lift(a) for a in node.args[:2]]
        only_vectors(lifter, values)
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
        for given, kind in zip(node.args[1:], ("weight", "bias"), strict=False):
            text = ast.unparse(given)
            if is_dotted(given) and text in lifter.numbers:  # taken for a number so far, for nothing else is said of it
                lifter.numbers.discard(text)
                lifter.weights[text] = (kind, value.root)
        return Lifted(ast.Call(node.func, [value.code, *(o.code for o in others)], []), value.dims, value.more, (*value.sizes[:-1], None))
    if last in ELEMENTWISE and last not in ("to", "float", "contiguous"):
        values = [lifter.lift(a) for a in node.args]
        extra = {k: lifter.lift(w) for k, w in keywords.items()}
        given = [*values, *extra.values()]
        if not any(v.axes or v.dims or v.more for v in given):
            return Lifted(copy.deepcopy(node), kind="free")

        def build(*codes):
            named = [ast.keyword(k, c) for k, c in zip(extra, codes[len(values) :], strict=True)]
            return ast.Call(copy.deepcopy(node.func), list(codes[: len(values)]), named)

        if last == "where" and len(given) != 3:
            raise GiveUp("the positions where something holds differ from turn to turn")
        if last == "where":
            return replace(lifter.elementwise(given, build), kind="tensor")
        return _dtyped(lifter.elementwise(given, build), last)
    if last in MAKERS:
        if any(lifter.lift(a).axes for a in node.args if not isinstance(a, (ast.Tuple, ast.List))):
            raise GiveUp(f"the shape of `{ast.unparse(node)[:40]}` changes from turn to turn")
        return _invariant_result(lifter, node, Lifted(node), last)
    value = lifter.lift(node.args[0])
    if not value.axes:
        return _invariant_result(lifter, node, value, last)
    if last in REDUCTIONS:
        if last in ("max", "min") and len(node.args) == 2 and integer(node.args[1]) is None:
            other = lifter.lift(node.args[1])
            function = "maximum" if last == "max" else "minimum"
            return lifter.elementwise([value, other], lambda a, b: method(name("torch"), function, a, b))
        return reduction(lifter, value, last, list(node.args[1:]), keywords)
    if last in ALONG:
        return along(lifter, value, last, list(node.args[1:]), keywords, node.func)
    if last == "normalize":
        dim = integer(keywords.get("dim", ast.Constant(1)))
        if dim is None:
            raise GiveUp("normalize over an unknown dimension")
        place = value.inner_position(dim)
        rest = [ast.keyword(k, w) for k, w in keywords.items() if k != "dim"]
        return replace(value, code=ast.Call(copy.deepcopy(node.func), [value.code, *node.args[1:]], [*rest, ast.keyword("dim", number(place))]), kept=None)
    if last in STRUCTURE:
        return structured(lifter, value, last, list(node.args[1:]), keywords)
    if last in OF_A_MATRIX:
        return of_matrices(lifter, node, value, last, list(node.args[1:]))
    raise GiveUp(f"`torch…{last}` is not understood")


def _invariant_result(lifter: Lifter, node: ast.Call, value: Lifted, last: str) -> Lifted:
    """A call that does not depend on the loop: its own dimensions must be known, or it would line up with the loop's."""
    if last in REDUCTIONS and len(node.args) == 1 and not node.keywords:
        return Lifted(copy.deepcopy(node), kind="number")
    if last in ALONG and (value.dims or value.more):
        return replace(value, code=copy.deepcopy(node), kept=None)
    rank = _rank_made(lifter, node, last)
    if last in REDUCTIONS and value.dims and not value.more and len(node.args) <= 2 and last not in ("max", "min", "median", "mode"):
        dims = [k.value for k in node.keywords if k.arg in ("dim", "axis")] + node.args[1:]
        if len(dims) == 1 and integer(dims[0]) is not None and all(k.arg in ("dim", "axis") for k in node.keywords):
            rank = value.rank - 1
    if rank is None:
        raise GiveUp(f"how many dimensions `{ast.unparse(node)[:40]}` has is not shown")
    return Lifted(copy.deepcopy(node), (INNER,) * rank, sizes=(None,) * rank)


def _rank_made(lifter: Lifter, node: ast.Call, last: str) -> int | None:
    if last == "eye":
        return 2
    if last in ("arange", "linspace", "logspace"):
        return 1
    if last in ("zeros", "ones", "empty", "full"):
        first = node.args[0]
        if isinstance(first, (ast.Tuple, ast.List)):
            return None if any(isinstance(e, ast.Starred) for e in first.elts) else len(first.elts)
        if last != "full" and all(lifter.lift(a).kind in ("number", "free", "index") for a in node.args):
            return len(node.args)
    return None


def _method(lifter: Lifter, node: ast.Call, func: ast.Attribute, keywords: dict[str, ast.expr]) -> Lifted:
    last, asked = func.attr, lifter.product_rank
    if last == "item":
        lifter.mark_scalars(func.value)  # one number in every turn
    value = lifter.lift(func.value)
    if last in ("item", "cpu", "numpy", "tolist"):
        if last in ("numpy", "tolist"):
            raise GiveUp(f"`.{last}()` leaves torch")
        if last == "item":
            value = one_number(lifter, value)
            return replace(value, code=value.code if value.kind == "bool" else detached(value.code), kept=None)
        return replace(value, code=method(value.code, "cpu"), kept=None)
    if last in ("size", "dim", "numel"):
        if last == "size" and len(node.args) == 1:
            return size_of(lifter, value, integer(node.args[0]))
        raise GiveUp(f"`.{last}()` in the loop is not understood")
    if not value.axes and value.kind in ("free", "number"):
        if last not in ELEMENTWISE | REDUCTIONS:
            raise GiveUp(f"`.{last}()` is called, and what it does is not shown here")
        if any(lifter.lift(a).axes for a in [*node.args, *keywords.values()]):
            raise GiveUp(f"nothing here shows that `{ast.unparse(func.value)[:30]}` is a tensor")
        return Lifted(copy.deepcopy(node), kind="free")
    if last in ("matmul", "dot", "mm", "mv", "bmm", "inner") and len(node.args) == 1:
        other = lifter.lift(node.args[0])
        lifter.product_rank = asked
        return matmul(lifter, value, other, 1 if last == "dot" else None, (2, 1) if last == "mv" else None)
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
        return along(lifter, value, last, list(node.args), keywords, None)
    if last in STRUCTURE:
        return structured(lifter, value, last, list(node.args), keywords)
    if last in OF_A_MATRIX:
        return of_matrices(lifter, node, value, last, list(node.args))
    if last in ("outer", "ger") and len(node.args) == 1:
        return outer(lifter, [value, lifter.lift(node.args[0])])
    raise GiveUp(f"`.{last}()` is not understood")


def _dtyped(value: Lifted, last: str) -> Lifted:
    if last in ("bool", "isnan", "isinf", "isfinite", "eq", "ne", "lt", "gt", "le", "ge", "logical_and", "logical_or",
                "logical_not", "greater", "less", "greater_equal", "less_equal", "not_equal"):  # fmt: skip
        return replace(value, kind="bool", kept=None)
    return value


__all__ = ["ALONG", "REDUCTIONS", "call", "collected", "loops_first", "matmul", "pair_part", "ranked", "size_of", "transposed", "unlooped"]
