"""Whether what is assigned has the dtype that a store into an allocated tensor would have given it."""

from __future__ import annotations

import ast
import typing

from torchsleuth.linter.vectorise.lifted import Lifted

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

SAME_DTYPE = frozenset(
    "abs neg clamp clamp_min clamp_max maximum minimum where amax amin max min flip transpose permute movedim unsqueeze squeeze flatten "
    "reshape clone detach contiguous masked_fill relu sign arange range tuple cpu".split()
)


def keeps_dtype(plan: Plan, value: Lifted, code: ast.expr, allocation) -> bool:
    """A store casts to the dtype of what was allocated (and copies to its device); an assignment does not."""
    if allocation.has_dtype or value.kind in ("bool", "index") or _is_integer_code(code):
        return False
    read = {ast.unparse(n) for n in ast.walk(code) if isinstance(n, (ast.Name, ast.Attribute))}
    sources = {base for base, facts in plan.reader.lifter.bases.items() if base in read and facts["kind"] == "float"}
    if not allocation.dtype_of:
        if any(k.arg == "device" for k in allocation.statement.value.keywords):
            return False
        return all(_has_default_dtype(plan.context.value(base)) for base in sources)
    like = plan.context.like
    if any(base != allocation.dtype_of and like.get(base) != allocation.dtype_of for base in sources):
        return False
    known = plan.context.value(allocation.dtype_of)
    if known is not None and known.dtype == "float" or _needs_floats(code):
        return True
    return not _may_convert(code) and not read & plan.reader.lifter.numbers


DOUBLE = frozenset(("torch.float64", "torch.double", "torch.complex128", "torch.cdouble"))


def in_double(code: ast.expr, allocation) -> ast.expr:
    """Python counts in double precision, `arange` does not once it is divided: `math.cos(i / n)` into a tensor that has the digits."""
    given = allocation.statement.value.keywords if allocation is not None and isinstance(allocation.statement.value, ast.Call) else ()
    if not any(k.arg == "dtype" and ast.unparse(k.value) in DOUBLE for k in given):
        return code
    if any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)) for n in ast.walk(code)):
        return code
    return _InDouble().visit(ast.parse(ast.unparse(code), mode="eval").body)


class _InDouble(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.value = self.visit(node.value)
        return node  # positions stay whole numbers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) == "torch.arange" and not any(k.arg == "dtype" for k in node.keywords):
            node.keywords.append(ast.keyword("dtype", ast.parse("torch.float64", mode="eval").body))
        return node


def _has_default_dtype(value) -> bool:
    return value is not None and value.is_tensor and value.op in ("rand", "randn", "zeros", "ones") and not any(k.arg in ("dtype", "device") for k in value.node.keywords)


def _may_convert(code: ast.expr) -> bool:
    """Whether whole numbers may come out as something else: `x / 2`, `x * 0.5`, `x.exp()`, and sums of narrow ones."""
    for node in ast.walk(code):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow)) or isinstance(node, ast.Constant) and isinstance(node.value, float):
            return True
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if last not in SAME_DTYPE:
                return True
    return False


def _needs_floats(code: ast.expr) -> bool:
    """Operations that refuse whole numbers."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("mean", "std", "var", "norm", "softmax", "log_softmax", "normalize") for n in ast.walk(code))


def _is_integer_code(code: ast.expr) -> bool:
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        if code.func.attr in ("argmax", "argmin", "long", "int", "bool", "any", "all", "count_nonzero", "arange"):
            return True
        if code.func.attr == "where" and len(code.args) == 3:
            return not any(isinstance(n, (ast.Subscript, ast.Call)) or isinstance(n, ast.Constant) and isinstance(n.value, float)
                           for a in code.args[1:] for n in ast.walk(a)) and all(_may_be_whole(a) for a in code.args[1:])  # fmt: skip
        if code.func.attr in ("sum",) and isinstance(code.func.value, ast.Compare):
            return True
    return isinstance(code, ast.Compare) or (isinstance(code, ast.Attribute) and code.attr == "indices")


def _may_be_whole(code: ast.expr) -> bool:
    """A number written out, or a name that may stand for one."""
    return isinstance(code.operand if isinstance(code, ast.UnaryOp) else code, (ast.Constant, ast.Name, ast.Attribute))


def is_whole(code: ast.expr) -> bool:
    """Integers or truth values, or sums of them."""
    while isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr in ("sum", "flatten", "unsqueeze", "transpose"):
        code = code.func.value
    return _is_integer_code(code) or isinstance(code, ast.UnaryOp) and is_whole(code.operand)
