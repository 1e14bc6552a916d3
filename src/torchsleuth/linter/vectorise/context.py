"""What a function says about its tensors before a loop runs: sizes, numbers of dimensions, who is a tensor."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from torchsleuth.linter.events import Frame
from torchsleuth.linter.values import Value
from torchsleuth.linter.vectorise.lifted import GiveUp, SizeKey

LISTLIKE = re.compile(
    r"(list|lists|tensors|seqs|sequences|items|layers|modules|chunks|batches|dicts?|tuples?|outs|xs|ys|preds_all|samples|"
    r"hidden_states|states?|grads?|gradients?|params|parameters|losses|frames|sequence|files|paths|texts|"
    r"words|names|groups|blocks|heads_list|splits|parts|pieces|segments|examples|args|"
    r"all_\w+|\w+_list|\w+_outputs|outputs|shape|shapes|size|sizes|strides?|dims?|axes|perm|offsets?|lengths_list)$"
)
NOT_TENSOR_KINDS = frozenset({"list", "dict", "tuple", "module", "numpy", "str", "none", "range", "zip", "optimizer", "parameters",
                              "class", "function", "path", "size", "number"})  # fmt: skip


@dataclass
class Allocation:
    """`out = torch.zeros(n, m)`: a fresh tensor that a loop may fill."""

    statement: ast.Assign
    shape: tuple[tuple[SizeKey, int], ...] | None  # one key and offset per dimension; None: like another tensor
    like: str = ""
    fill: str = "zeros"
    has_dtype: bool = False
    dtype_of: str = ""  # the tensor whose dtype it has; empty: torch's default dtype, or another one if `has_dtype`


@dataclass
class Context:
    frame: Frame
    dotted: object  # expression -> imported path
    counts: dict[str, int] = field(default_factory=dict)  # how often a name is assigned
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[SizeKey, int], ...]] = field(default_factory=dict)
    like: dict[str, str] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    exact_ranks: dict[str, int] = field(default_factory=dict)
    evidence: set[str] = field(default_factory=set)
    against: dict[str, str] = field(default_factory=dict)
    arguments: set[str] = field(default_factory=set)
    guessed: set[str] = field(default_factory=set)  # tensors whose number of dimensions is tried, not shown
    weak: set[str] = field(default_factory=set)  # what NumPy arrays show as well: `.shape`, several indices
    stacked: set[str] = field(default_factory=set)  # given to `torch.stack` or `torch.cat` as it is: as a rule a list
    counted: set[str] = field(default_factory=set)  # `len(x[0])`: as one writes for a list of lists
    least_ranks: dict[str, int] = field(default_factory=dict)  # `x.shape[1]`: two dimensions at least
    same_length: set[frozenset[str]] = field(default_factory=set)  # asserted
    meant: dict[str, ast.expr] = field(default_factory=dict)  # `turns = n - k + 1`, set once
    sized: set[str] = field(default_factory=set)  # `len(x)` is taken: no number
    with_numpy: bool = False  # the file uses NumPy, too

    # Sizes --------------------------------------------------------------------------------------

    def size(self, node: ast.expr) -> tuple[SizeKey, int]:
        """What a size is, as something comparable and an integer offset: `n - 1` -> (("size", "x", 0), -1)."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return ("const",), node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(node.right, ast.Constant):
            if isinstance(node.right.value, int):
                key, offset = self.size(node.left)
                return key, offset + (node.right.value if isinstance(node.op, ast.Add) else -node.right.value)
        if isinstance(node, ast.Name) and node.id in self.sizes:
            tensor, dim = self.sizes[node.id]
            return self.canonical(("size", tensor, dim)), 0
        found = size_expression(node)
        if found is not None:
            return self.canonical(("size", *found)), 0
        return ("expr", ast.unparse(node)), 0

    def canonical(self, key: SizeKey) -> SizeKey:
        for _ in range(10):
            if key[0] != "size":
                return key
            tensor, dim = key[1], key[2]
            if dim < 0 and self.rank(tensor) is not None:
                dim += self.rank(tensor)
                key = ("size", tensor, dim)
            if tensor in self.like:
                key = ("size", self.like[tensor], dim)
                continue
            shape = self.shapes.get(tensor)
            if shape is not None and 0 <= dim < len(shape) and shape[dim][1] == 0 and shape[dim][0] != ("const",):
                if shape[dim][0] == key:
                    return key
                key = shape[dim][0]
                continue
            return key
        return key

    # Ranks and tensors ----------------------------------------------------------------------------

    def rank(self, tensor: str) -> int | None:
        if tensor in self.exact_ranks:
            return self.exact_ranks[tensor]
        if tensor in self.shapes:
            return len(self.shapes[tensor])
        if tensor in self.like and self.like[tensor] != tensor:
            return self.rank(self.like[tensor])
        if self.frame.inlined:
            return None  # what one call passes need not be what all calls pass
        value = self.value(tensor)
        return value.ndim if value is not None and value.is_tensor else None

    def value(self, text: str) -> Value | None:
        if text.startswith("self."):
            return self.frame.attributes.get(text[5:])
        return self.frame.env.get(text)

    def require_tensor(self, text: str) -> bool:
        """True where the source shows `text` to be a tensor, False where it may be; raises where it is not."""
        if text in ("self", "cls"):
            raise GiveUp(f"`{text}` is an object that is indexed, and what it does is not shown here")
        if text in self.against:
            raise GiveUp(f"`{text}` {self.against[text]}")
        value = self.value(text)
        if text in self.stacked and (self.counts.get(text) != 1 or value is None or not value.is_tensor or value.assumed):
            raise GiveUp(f"`{text}` is stacked or joined here like a list")
        if value is not None:
            if value.is_tensor:
                return not value.assumed
            if value.kind in NOT_TENSOR_KINDS:
                raise GiveUp(f"`{text}` is not a tensor but {article(value.kind)}")
        is_argument = text in self.arguments and not self.counts.get(text)
        if text in self.allocations or text in self.shapes:
            return True
        if text in self.evidence and (is_argument or self.counts.get(text) == 1 or "." in text):
            return True
        if text in self.weak and (is_argument or self.counts.get(text) == 1 or "." in text):
            return not self.with_numpy
        if text in self.counted:
            raise GiveUp(f"nothing here shows that `{text}` is a tensor, and it is counted like a list of lists")
        if not is_argument and "." not in text:
            raise GiveUp(f"nothing here shows that `{text}` is a tensor")
        if "." in text:
            raise GiveUp(f"nothing here shows that `{text}` is a tensor")
        if LISTLIKE.search(text):
            raise GiveUp(f"nothing here shows that `{text}` is a tensor, and its name suggests a list")
        return False

    def are_equally_long(self, texts: list[str]) -> bool:
        first = texts[0]
        mine = self.canonical(("size", first, 0))
        return all(self.canonical(("size", t, 0)) == mine or frozenset({first, t}) in self.same_length for t in texts[1:])

    def is_number(self, text: str) -> bool:
        """Something the source shows, or an argument's nature suggests, to be one number and no tensor."""
        value = self.value(text)
        if value is not None and value.kind == "number":
            return True
        if text in self.sized:
            return False
        return (text in self.arguments and not self.counts.get(text)) or text in self.sizes or "." in text


def article(kind: str) -> str:
    return {"numpy": "a NumPy array", "none": "None", "str": "a string"}.get(kind, f"a {kind}")


def size_expression(node: ast.expr) -> tuple[str, int] | None:
    """`x.shape[k]`, `x.size(k)`, `x.size()[k]` or `len(x)` -> (x, k)."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        call = node.value
        if call.func.attr == "size" and not call.args and is_dotted(call.func.value) and (dim := integer(node.slice)) is not None:
            return ast.unparse(call.func.value), dim
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        dim = integer(node.slice)
        if dim is not None and is_dotted(node.value.value):
            return ast.unparse(node.value.value), dim
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size" and len(node.args) == 1 and is_dotted(node.func.value):
            dim = integer(node.args[0])
            if dim is not None:
                return ast.unparse(node.func.value), dim
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 and is_dotted(node.args[0]):
            return ast.unparse(node.args[0]), 0
    return None


def integer(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = integer(node.operand)
        return -inner if inner is not None else None
    return None


def is_dotted(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
