"""Products and functions of matrices over all turns at once: dot products, matrices times rows, batches of matrices."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise.context import is_dotted
from torchsleuth.linter.vectorise.lifted import INNER, GiveUp, Lifted, RankUnknown, method, number
from torchsleuth.linter.vectorise.reductions import reduction
from torchsleuth.linter.vectorise.shapes import loops_first, ranked, unsqueezed

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter

# Functions of one matrix, and how many dimensions their result has: given a batch of matrices they do the same to each.
OF_A_MATRIX = {"inverse": 2, "inv": 2, "pinverse": 2, "pinv": 2, "matrix_exp": 2, "cholesky": 2, "tril": 2, "triu": 2, "det": 0, "logdet": 0, "trace": 0}


def only_vectors(lifter: Lifter, values: list[Lifted]) -> None:
    """Each of these is a vector in every turn: that settles the number of dimensions of its tensor."""
    for place, value in enumerate(values):
        if value.more:
            values[place] = ranked(lifter, value, 1)
        elif value.rank != 1:
            raise GiveUp("vectors were expected")


def matmul(lifter: Lifter, left: Lifted, right: Lifted, rank: int | None = None, ranks: tuple[int, int] | None = None, multiplied: bool = False) -> Lifted:
    """`left @ right`; `multiplied` where the result is a factor itself, and so no single number."""
    values = [_as_tensor(lifter, left), _as_tensor(lifter, right)]
    if not values[0].axes and not values[1].axes:
        return Lifted(ast.BinOp(left.code, ast.MatMult(), right.code), kind="free")
    wanted = ranks or ((rank, rank) if rank is not None else None)
    if wanted is None and lifter.product_rank == 0:
        wanted = (1, 1)
    elif wanted is None and lifter.product_rank == 1 and bool(values[0].axes) != bool(values[1].axes):
        wanted = (1, 2) if values[0].axes else (2, 1)
    elif wanted is None and lifter.product_rank == 2 and values[0].axes and values[1].axes:
        wanted = (2, 2)
    for place in (0, 1):
        if values[place].more:
            if multiplied and place == 1 and not values[1].axes and not values[0].more and values[0].rank == 1:
                wanted = (1, 2)
                lifter.assume(f"`{values[1].root}` is a matrix")
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


def of_matrices(lifter: Lifter, node: ast.Call, value: Lifted, last: str, given: list[ast.expr]) -> Lifted:
    """`torch.inverse(a[i])`, `a[i].det()`, `torch.triu(a[i], 1)` for all `i`: the matrices are the last two dimensions."""
    if value.more:
        value = ranked(lifter, value, 2)
    if value.rank != 2:
        raise GiveUp(f"`{last}` of what is not a matrix in every turn")
    if any(lifter.lift(g).axes for g in [*given, *(k.value for k in node.keywords)]):
        raise GiveUp(f"`{last}` in a way that changes from turn to turn")
    value = loops_first(lifter, value)
    if last not in ("tril", "triu", "trace", "pinv", "pinverse") and len(value.sizes) == len(value.dims):
        lifter.equal.join(value.sizes[-1], value.sizes[-2])  # a square
    kept = OF_A_MATRIX[last]
    dims, sizes = value.dims[: len(value.dims) - 2 + kept], value.sizes[: len(value.dims) - 2 + kept]
    if last == "trace":
        return Lifted(method(method(value.code, "diagonal", dim1=-2, dim2=-1), "sum", number(-1)), dims, False, sizes)
    is_method = isinstance(node.func, ast.Attribute) and not lifter.context.dotted(node.func).startswith("torch.")
    function = ast.Attribute(value.code, last, ast.Load()) if is_method else copy.deepcopy(node.func)
    return Lifted(ast.Call(function, [*([] if is_method else [value.code]), *given], copy.deepcopy(node.keywords)), dims, False, sizes)


def outer(lifter: Lifter, values: list[Lifted]) -> Lifted:
    """`torch.outer(u[i], v[i])`: every element of the one with every element of the other."""
    only_vectors(lifter, values)
    column, row = unsqueezed(loops_first(lifter, values[0]), 1), unsqueezed(loops_first(lifter, values[1]), 0)
    return lifter.elementwise([column, row], lambda a, b: ast.BinOp(a, ast.Mult(), b))
