"""What the source of a Function says about its inputs: tensors, numbers, flags, how many dimensions, whether they are trained.

Standard library only; nothing is run. `guess` tries first what fits the reading, and `forward` decides.
"""

from __future__ import annotations

import ast
import re
import typing
from dataclasses import dataclass, field

from torchsleuth.checker.source import Method, own_nodes

TENSOR_METHODS = frozenset(
    "shape size dim ndim view reshape permute transpose unsqueeze squeeze expand sum mean clone contiguous detach device dtype numel new_zeros "
    "new_empty new_ones float double half long t T mT mm bmm matmul clamp clamp_ abs exp log pow sqrt sigmoid tanh relu softmax gather scatter scatter_ "
    "index_select index_add_ masked_fill masked_fill_ flatten chunk split unbind flip roll amax amin max min norm data cpu cuda numpy is_cuda stride "
    "is_contiguous requires_grad new new_full type type_as to mul mul_ add add_ sub div neg sign round floor real imag conj var std cumsum".split()
)
REDUCTIONS = frozenset("sum mean amax amin softmax log_softmax cumsum norm var std logsumexp prod max min argmax argmin select narrow unsqueeze".split())
PICKING = frozenset("gather index_select index_add index_add_ scatter scatter_ scatter_add scatter_add_ take_along_dim nll_loss cross_entropy "
                    "index_copy_ index_fill_ scatter_reduce scatter_reduce_ index_put_".split())  # fmt: skip
SYMMETRIC = frozenset("eigh eigvalsh symeig cholesky cholesky_ex".split())
MASKING = frozenset("masked_fill masked_fill_ where masked_select".split())
RANKS = {"conv1d": 3, "conv2d": 4, "conv3d": 5, "conv_transpose1d": 3, "conv_transpose2d": 4, "bmm": 3, "baddbmm": 3, "mm": 2, "max_pool2d": 4,
         "avg_pool2d": 4, "max_pool1d": 3, "avg_pool1d": 3, "unfold": 4, "grid_sample": 4, "pixel_shuffle": 4, "interpolate": 4}  # fmt: skip
TRAINED_NAMES = re.compile(r"^(weights?|bias|biases|kernel|filters?|gamma|beta|embeddings?)$")


@dataclass
class Reading:
    """One input of forward."""

    constant: bool = False  # backward returns None for it wherever it returns
    tensor: bool = False  # it is used as a tensor
    whole: bool = False  # it is used as a whole number: a size, a dimension, a count
    flag: bool = False  # it is used as a condition
    called: bool = False  # it is called, or an object with attributes of its own
    kept: bool = False  # it is put on ctx as it is
    saved: bool = False  # it is saved for backward
    used: bool = False  # forward does more with it than to keep it for backward
    index: bool = False  # it picks elements of another tensor
    mask: bool = False  # it says which elements count
    complex: bool = False  # its real or imaginary part, or its conjugate, is asked for
    symmetric: bool = False  # a decomposition reads one triangle of it
    laid: bool = False  # it is a vector, laid along a dimension of something larger
    rank: int = -1
    shape: tuple[int, ...] = ()  # one that fits the others: the letters of `einsum` as sizes
    least: int = 0  # a lower bound of the rank
    values: list = field(default_factory=list)  # strings and numbers that it is compared with

    @property
    def plain(self) -> bool:
        """Whether everything speaks for a plain value: kept on ctx and nowhere used as a tensor, with no gradient of its own."""
        return self.constant and not self.tensor and not self.saved


def readings(names: typing.Sequence[str], forward: Method | None, backward: Method | None, setup: Method | None) -> dict[str, Reading]:
    """By the name of the input."""
    out = {name: Reading() for name in names}
    for method in (forward, setup, backward):
        if method is not None:
            _read_uses(method, out, own=method is not backward)
    if backward is not None:
        for k in _always_none(backward, len(names)):
            out[names[k]].constant = True
    if forward is not None:
        _read_equations(forward, out)
    return out


def _read_equations(forward: Method, out: dict[str, Reading]) -> None:
    """`einsum("bgi,gio->bgo", x, w)`: a letter is a size, and every letter is another one."""
    sizes: dict[str, int] = {}
    for call in own_nodes(forward.tree):
        if isinstance(call, ast.Call) and _called(call) == "einsum" and call.args and isinstance(_constant(call.args[0]), str):
            texts = _constant(call.args[0]).split("->")[0].replace(" ", "").split(",")
            for text, argument in zip(texts, call.args[1:], strict=False):
                if isinstance(argument, ast.Name) and argument.id in out and text.isalpha() and not out[argument.id].shape:
                    out[argument.id].shape = tuple(sizes.setdefault(letter, len(sizes) + 2) for letter in text)


def trained_by_name(name: str) -> bool:
    """The names that parameters of layers go by."""
    return TRAINED_NAMES.search(name) is not None


# -- what backward returns ------------------------------------------------------------------------


def _always_none(backward: Method, count: int) -> set[int]:
    """The positions at which every return has a literal None."""
    returns = [n.value for n in own_nodes(backward.tree) if isinstance(n, ast.Return)]
    found: set[int] | None = None
    for value in returns:
        elements = _elements(value)
        if elements is None:
            return set()
        here = {k for k, e in enumerate(elements) if e is None or isinstance(e, ast.Constant) and e.value is None}
        here |= set(range(len(elements), count))  # fewer than forward takes: nothing is said of the others
        found = here if found is None else found & here
    return {k for k in found or () if k < count}


def returned_count(backward: Method) -> int:
    """How many gradients the last return has; 0 where they cannot be counted."""
    returns = [n.value for n in own_nodes(backward.tree) if isinstance(n, ast.Return)]
    return len(_elements(returns[-1]) or ()) if returns else 0


def _elements(value: ast.expr | None) -> list[ast.expr | None] | None:
    """The elements of a tuple as it is written: `a, None`, `(a,) + (None,) * 3`; None where they cannot be counted."""
    if value is None:
        return []
    if isinstance(value, ast.Tuple):
        out: list[ast.expr | None] = []
        for element in value.elts:
            inner = _elements(element.value) if isinstance(element, ast.Starred) else [element]
            if inner is None:
                return None
            out += inner
        return out
    if isinstance(value, ast.List):
        return list(value.elts)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _elements(value.left), _elements(value.right)
        return None if left is None or right is None else left + right
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.right, ast.Constant) and isinstance(value.right.value, int):
        left = _elements(value.left)
        return None if left is None else left * min(value.right.value, 64)
    return None if isinstance(value, (ast.Name, ast.Call, ast.Attribute, ast.Starred, ast.IfExp)) and not _one(value) else [value]


def _one(value: ast.expr) -> bool:
    """A single gradient, not a tuple of them, as far as a look tells."""
    return isinstance(value, (ast.Name, ast.Call)) and not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "tuple")


# -- how it is used --------------------------------------------------------------------------------


def _read_uses(method: Method, out: dict[str, Reading], own: bool) -> None:
    parents = {child: node for node in ast.walk(method.tree) for child in ast.iter_child_nodes(node)}
    for node in own_nodes(method.tree):
        if isinstance(node, ast.Name) and node.id in out and isinstance(node.ctx, ast.Load):
            _read_use(node, parents, out, own)
        elif isinstance(node, ast.Attribute) and not own and node.attr in out and isinstance(node.value, ast.Name):
            _read_use(node, parents, out, own)  # ctx.kernel_size in backward is forward's kernel_size
        if isinstance(node, ast.Call):
            _read_call(node, out)


def _read_use(node: ast.Name | ast.Attribute, parents: dict, out: dict[str, Reading], own: bool) -> None:
    reading = out[node.id if isinstance(node, ast.Name) else node.attr]
    parent = parents.get(node)
    kept = own and isinstance(parent, (ast.Assign, ast.Tuple)) and _on_ctx(node, parent, parents)
    kept_whole = isinstance(parent, ast.Call) and _called(parent) in ("save_for_backward", "save_for_forward")
    reading.used |= own and not kept and not kept_whole and not _asserted(node, parents)
    if isinstance(parent, ast.Attribute):
        if parent.attr in TENSOR_METHODS:
            reading.tensor = True
            _read_method(parent, parents, reading)
        elif own:
            reading.called = True
    elif isinstance(parent, ast.Call):
        if parent.func is node:
            reading.called = True
        else:
            _read_argument(node, parent, reading, own)
    elif isinstance(parent, ast.keyword):
        if parent.arg in ("dim", "axis", "dims", "stride", "padding", "groups", "dilation", "kernel_size", "num_classes", "k", "dim_size"):
            reading.whole = True
    elif isinstance(parent, ast.Subscript):
        if parent.value is node:
            _read_subscript(parent, parents, out, reading)
        elif parent.slice is node:
            reading.index = True
    elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Invert):
        reading.mask = True
    elif isinstance(parent, ast.Slice):
        reading.whole = True
    elif isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node or isinstance(parent, (ast.BoolOp, ast.UnaryOp)) and isinstance(getattr(parent, "op", None), (ast.And, ast.Or, ast.Not)):
        reading.flag = True
    elif isinstance(parent, ast.Compare):
        _read_comparison(node, parent, reading)
    elif isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.FloorDiv, ast.Mod)):
        reading.whole |= not reading.tensor
    elif isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult):
        reading.tensor = True
        reading.least = max(reading.least, 1)
    elif kept:
        reading.kept = True


def _asserted(node: ast.AST, parents: dict) -> bool:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.Assert):
            return True
    return False


def _on_ctx(node: ast.AST, parent: ast.AST, parents: dict) -> bool:
    statement = parent if isinstance(parent, ast.Assign) else parents.get(parent)
    return isinstance(statement, ast.Assign) and any(
        isinstance(t, ast.Attribute) for target in statement.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])
    )


def _read_argument(node: ast.AST, call: ast.Call, reading: Reading, own: bool) -> None:
    name = _called(call)
    if name in ("save_for_backward", "save_for_forward", "mark_dirty"):
        reading.saved = reading.tensor = True
    elif name in ("range", "one_hot") and call.args and call.args[-1] is node:
        reading.whole = True
    elif isinstance(call.func, ast.Attribute) and name in REDUCTIONS and call.args[:1] == [node]:
        if isinstance(call.func.value, ast.Name) and call.func.value.id in ("torch", "F", "np"):
            reading.tensor = True
        else:
            reading.whole = True  # x.sum(dim)
    elif name in SYMMETRIC and call.args[:1] == [node]:
        reading.symmetric = True
    elif name in PICKING and call.args[:1] != [node]:
        reading.index = True
    elif name in MASKING and (call.args[:1] == [node]):
        reading.mask = True
    elif name in ("rand_like", "zeros_like", "ones_like", "empty_like", "randn_like", "full_like"):
        reading.tensor |= call.args[:1] == [node]


def _read_comparison(node: ast.AST, comparison: ast.Compare, reading: Reading) -> None:
    for other in (comparison.left, *comparison.comparators):
        options = other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else [other]
        for option in options:
            if isinstance(option, ast.Constant) and isinstance(option.value, str) and option.value not in reading.values:
                reading.values.append(option.value)


def _read_method(attribute: ast.Attribute, parents: dict, reading: Reading) -> None:
    """`x.shape[2]`, `b, c, h, w = x.shape`, `x.permute(0, 2, 1)`, `x.sum(dim=(0, 2))`."""
    call = parents.get(attribute)
    called = isinstance(call, ast.Call) and call.func is attribute
    if attribute.attr in ("real", "imag", "conj"):
        reading.complex = True
    if attribute.attr in ("shape", "size"):
        whole = call if called else attribute
        if called and call.args:
            reading.least = max(reading.least, *map(_reach, call.args))
            return
        use = parents.get(whole)
        if isinstance(use, ast.Subscript) and use.value is whole:
            reading.least = max(reading.least, _reach(use.slice))
        elif isinstance(use, ast.Assign) and use.value is whole:
            for target in use.targets:
                if isinstance(target, ast.Tuple):
                    starred = any(isinstance(e, ast.Starred) for e in target.elts)
                    reading.least = max(reading.least, len(target.elts) - starred)
                    reading.rank = reading.rank if starred else len(target.elts)
    elif called and attribute.attr == "permute":
        order = call.args[0].elts if call.args and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
        reading.rank = len(order)
    elif attribute.attr in ("t", "mm") and called or attribute.attr == "T":
        reading.rank = 2
    elif attribute.attr == "bmm" and called:
        reading.rank = 3
    elif called and attribute.attr in ("transpose", *REDUCTIONS):
        places = [*call.args, *(k.value for k in call.keywords if k.arg in ("dim", "axis", "dim0", "dim1"))]
        reading.least = max([reading.least, *map(_reach, places)])
    elif called and attribute.attr in ("view", "reshape") and _is_laid_along(call):
        reading.rank, reading.laid = 1, True


def _reach(node: ast.AST) -> int:
    """How many dimensions a literal place (or several of them) asks for."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return 0
    places = value if isinstance(value, (tuple, list)) else (value,)
    return max((p + 1 if p >= 0 else -p for p in places if isinstance(p, int) and not isinstance(p, bool)), default=0)


def _is_laid_along(call: ast.Call) -> bool:
    """`b.view(1, -1, 1, 1)`: one dimension, put in its place among others."""
    sizes = [_constant(a) for a in call.args]
    return len(sizes) > 1 and sizes.count(-1) == 1 and sizes.count(1) == len(sizes) - 1


def _constant(node: ast.AST) -> typing.Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def _read_subscript(subscript: ast.Subscript, parents: dict, out: dict[str, Reading], reading: Reading) -> None:
    """`x[:, 0]` has two dimensions or more; `b[None, :, None]` has one, and what it meets has three; `x[:, None]` may have any number."""
    places = subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]
    added = sum(isinstance(p, ast.Constant) and p.value is None for p in places)
    if any(isinstance(p, ast.Constant) and p.value is Ellipsis for p in places):
        return
    reading.tensor = True
    reading.least = max(reading.least, len(places) - added)
    open_ended = len(places) < 3 and not isinstance(places[-1], ast.Slice)
    if added and reading.rank < 0 and not open_ended and all(isinstance(p, (ast.Constant, ast.Slice)) for p in places):
        reading.rank = len(places) - added
        reading.laid = reading.rank == 1


def _read_call(call: ast.Call, out: dict[str, Reading]) -> None:
    """Functions whose operands have a rank of their own, and operands that are laid along another."""
    name = _called(call)
    if name == "einsum" and call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
        left = call.args[0].value.split("->")[0].replace(" ", "").split(",")
        for text, argument in zip(left, call.args[1:], strict=False):
            if isinstance(argument, ast.Name) and argument.id in out and "..." not in text:
                out[argument.id].tensor, out[argument.id].rank = True, len(text)
    elif name in RANKS and not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in out):
        for argument in call.args[: 2 if name.startswith(("conv", "bmm", "mm")) else 1]:
            if isinstance(argument, ast.Name) and argument.id in out:
                out[argument.id].tensor, out[argument.id].rank = True, RANKS[name]
    elif name == "linear" and len(call.args) > 1 and isinstance(call.args[1], ast.Name) and call.args[1].id in out:
        out[call.args[1].id].tensor, out[call.args[1].id].rank = True, 2


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def along(method: Method | None, names: typing.Collection[str]) -> int:
    """The rank that an operand laid along others (`b.view(1, -1, 1, 1)`, `b[None, :, None, None]`) asks of them; 0 where none is."""
    rank = 0
    for node in own_nodes(method.tree) if method is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("view", "reshape") and _is_laid_along(node):
            if isinstance(node.func.value, ast.Name) and node.func.value.id in names:
                rank = max(rank, len(node.args))
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names and isinstance(node.slice, ast.Tuple):
            places = node.slice.elts
            if any(isinstance(p, ast.Constant) and p.value is None for p in places) and all(isinstance(p, (ast.Constant, ast.Slice)) for p in places):
                rank = max(rank, len(places))
    return rank
