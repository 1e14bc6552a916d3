"""Reductions over all turns at once: a reduction of each row becomes one over the row's dimensions."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise.context import integer, is_dotted
from torchsleuth.linter.vectorise.lifted import INNER, ONE, GiveUp, Lifted, RankUnknown, dims_argument, expression, method, name, number
from torchsleuth.linter.vectorise.shapes import loops_first

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter

REDUCTIONS = frozenset(
    "sum mean prod amax amin max min std var norm any all argmax argmin logsumexp median nansum nanmean count_nonzero "
    "vector_norm".split()
)
SEVERAL_DIMS = frozenset("sum mean amax amin std var norm any all logsumexp nansum nanmean count_nonzero vector_norm".split())
ALONG = frozenset("softmax log_softmax cumsum cumprod flip softmin sort_values".split())


def prefix_reduction(lifter: Lifter, node: ast.Call) -> Lifted | None:
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
    if value.doubt:
        raise GiveUp(value.doubt)  # `(centres - points[i]).sum(dim=1)`: the dimension may be one that only the other operand has
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
    return Lifted(code, dims, value.more, sizes, _result_kind(value, last), kept=kept, root=value.root if value.more else "")


def _full_reduction(lifter: Lifter, value: Lifted, last: str, extra: dict[str, ast.expr]) -> Lifted:
    last = {"max": "amax", "min": "amin"}.get(last, last)
    kind = _result_kind(value, last)
    if value.more:
        facts = lifter.bases.get(value.root)
        if facts is not None and not value.rank:
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
        whole = _unordered(value.code) if last in SEVERAL_DIMS else value.code
        code = method(method(whole, "flatten", number(start)), last, dim=number(start), **extra)
        if last == "median":
            code = ast.Attribute(code, "values", ast.Load())
        kept = None
        if last in SEVERAL_DIMS and value.is_root:
            # `dim=()` would reduce everything: a tensor without dimensions of its own must raise, as `flatten` does
            over = expression(f"tuple(range({start}, max({ast.unparse(value.code)}.ndim, {start + 1})))")
            # torch.norm without `p` refuses more than two dimensions
            extra_kept = {"p": 2, **extra} if last == "norm" else extra
            kept = (method(value.code, last, dim=over, **extra_kept, keepdim=True), value.axes)
        whole = method(value.code, "sum") if last == "sum" and not extra else None
        return Lifted(code, value.axes, False, value.sizes[:start], kind, kept=kept, kept_more=kept is not None and lead == start, root=value.root, whole=whole)
    places = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
    if not places:
        # Nobody reduces a number: it has dimensions that nothing here shows.
        raise RankUnknown(f"`{last}` of what looks like a single number")
    dims = tuple(d for d in value.dims if d not in (INNER, ONE))
    sizes = tuple(s for p, s in enumerate(value.sizes) if p not in places)
    if len(places) > 1 and last not in SEVERAL_DIMS:
        if places != list(range(places[0], places[-1] + 1)):
            raise GiveUp(f"`{last}` over dimensions that are not next to one another")
        flat = method(value.code, "flatten", number(places[0]), number(places[-1]))
        return Lifted(method(flat, last, dim=number(places[0]), **extra), dims, False, sizes, kind)
    if last == "median":
        return Lifted(ast.Attribute(method(value.code, "median", dim=number(places[0])), "values", ast.Load()), dims, False, sizes)
    if last == "norm" and not extra and len(places) > 2:
        extra = {"p": 2}
    if last == "norm" and not extra:
        apart = _cdist(lifter, value, places)
        if apart is not None:
            return Lifted(apart, dims, False, sizes)
    code = method(value.code, last, dim=dims_argument(places), **extra)
    kept = (method(value.code, last, dim=dims_argument(places), **extra, keepdim=True),
            tuple(ONE if p in places else d for p, d in enumerate(value.dims)))  # fmt: skip
    whole = method(value.code, "sum") if last == "sum" and not extra else None
    return Lifted(code, dims, False, sizes, kind, kept=kept, whole=whole)


def _unordered(code: ast.expr) -> ast.expr:
    """A value all of whose own dimensions are reduced need not have them in order: windows as `unfold` gives them."""
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr == "movedim" and ast.unparse(code.args[0]) == "-1":
        return code.func.value
    return code


def _result_kind(value: Lifted, last: str) -> str:
    """Truth values, whole numbers or what the value was: a store casts, an assignment does not."""
    if last in ("any", "all"):
        return "bool"
    if last in ("argmax", "argmin", "count_nonzero") or (value.kind in ("bool", "index") and last in ("sum", "prod")):
        return "index"
    return "tensor"


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
        facts = lifter.bases.get(value.root)
        if facts is not None and value.more:
            facts["extra"] = max(facts["extra"], 1)
        return replace(value, code=code, kept=None, sizes=tuple(None if p == place else s for p, s in enumerate(value.sizes)))
    if value.more and (place < 0 or place >= len(value.dims)):
        facts = lifter.bases.get(value.root)
        if facts is not None:
            facts["extra"] = max(facts["extra"], 1)
        return replace(value, code=code, kept=None)
    keep = [p for p in range(len(value.dims)) if p != place]
    return Lifted(code, tuple(value.dims[p] for p in keep), value.more, tuple(value.sizes[p] for p in keep if p < len(value.sizes)))


def along(lifter: Lifter, value: Lifted, last: str, args: list[ast.expr], keywords: dict, func: ast.expr | None) -> Lifted:
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
