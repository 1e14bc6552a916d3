"""Re-evaluates an expression of the failed statement from live frames, without running any code of the user's.

Names, attributes of plain objects, containers, arithmetic on numbers, and torch operations that are known to have
no side effect. A torch operation is computed for real where its operands are small and live on the CPU, and for its
shape only (meta tensors) otherwise. Anything else is UNKNOWN: not a guess.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import operator
import types
import typing
import warnings

import torch

from torchsleuth.probe.names import locals_of


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: typing.Final = _Unknown()

MOST_ELEMENTS = 2_000_000

_BINARY: dict[type, typing.Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.MatMult: operator.matmul, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
_COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip

# Operations without side effects whose result depends on their operands alone.
PURE = frozenset(
    """abs absolute add addmm all amax amin any arange argmax argmin argsort as_tensor atleast_1d atleast_2d baddbmm bfloat16
    bitwise_and bitwise_not bitwise_or bmm bool broadcast_to byte cat ceil chunk clamp clip clone column_stack concat contiguous
    cos cpu cumprod cumsum detach diag diagonal diff div dot double dstack einsum empty eq exp expand expand_as eye flatten
    flip float float_power floor floor_divide fmod full full_like gather ge gt half hstack imag index_select int isin isnan
    le lerp linspace log log1p log2 log_softmax logical_and logical_not logical_or logical_xor logsumexp long lt masked_fill
    masked_select matmul max maximum mean min minimum mm movedim mul mv narrow ne neg negative new_full new_ones new_zeros
    nonzero norm ones ones_like outer pad permute pow prod real reciprocal relu remainder repeat repeat_interleave reshape
    roll round rsqrt rsub scatter select sigmoid sign sin softmax sort split sqrt square squeeze stack std sub subtract sum
    swapaxes t take take_along_dim tan tanh tensor tile to topk transpose tril triu true_divide type_as unbind unflatten
    unique unsqueeze var view view_as vstack where zeros zeros_like gelu silu normalize one_hot tril_indices cdist
    scaled_dot_product_attention linear layer_norm embedding interpolate adaptive_avg_pool2d max_pool2d avg_pool2d conv1d conv2d
    conv3d logit leaky_relu elu softplus cosine_similarity meshgrid short char numpy_T""".split()
)
# Drawn numbers: the shape may be had, the values may not (and the generator is left alone).
RANDOM_SHAPES = frozenset({"rand", "randn", "randint", "rand_like", "randn_like", "randperm", "empty_like", "dropout"})
_QUESTIONS = frozenset({"size", "dim", "numel", "ndimension", "nelement", "stride", "is_contiguous", "__len__"})
_TENSOR_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "T", "mT", "H", "mH", "data", "real", "imag"})
_BUILTINS = {"len": len, "int": int, "float": float, "min": min, "max": max, "range": range, "tuple": tuple, "list": list,
             "abs": abs, "sum": sum, "round": round, "bool": bool}  # fmt: skip
_PLAIN = (int, float, complex, str, bytes, type(None), slice, type(Ellipsis), torch.dtype, torch.device, range)


class Evaluator:
    """Evaluates in one live frame. `recomputed` says whether anything had to be computed again."""

    def __init__(self, frame: types.FrameType | None) -> None:
        self._locals = locals_of(frame) if frame is not None else {}
        self._globals = frame.f_globals if frame is not None else {}
        self.recomputed: set[int] = set()  # ids of the tensors made here
        self._kept: list[torch.Tensor] = []
        self._devices: dict[int, str] = {}

    @classmethod
    def of(cls, local: dict[str, typing.Any], others: dict[str, typing.Any]) -> Evaluator:
        """In a frame that is gone, or never was: with these variables."""
        made = cls(None)
        made._locals, made._globals = local, others
        return made

    def bind(self, name: str, value: typing.Any) -> None:
        self._locals[name] = value

    def value(self, node: ast.AST | None) -> typing.Any:
        if node is None:
            return UNKNOWN
        try:
            with torch.no_grad():
                return self._value(node)
        except Exception:
            return UNKNOWN

    def device_of(self, tensor: torch.Tensor) -> str:
        """Where the tensor would be; one computed for its shape only lies on `meta`."""
        return self._devices.get(id(tensor), str(tensor.device))

    def is_recomputed(self, tensor: object) -> bool:
        return id(tensor) in self.recomputed

    # -- by syntax ------------------------------------------------------------------------------

    def _value(self, node: ast.AST) -> typing.Any:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        return method(node) if method is not None else UNKNOWN

    def _constant(self, node: ast.Constant) -> typing.Any:
        return node.value

    def _name(self, node: ast.Name) -> typing.Any:
        for scope in (self._locals, self._globals, vars(builtins)):
            if node.id in scope:
                return scope[node.id]
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> typing.Any:
        owner = self._value(node.value)
        if owner is UNKNOWN:
            return UNKNOWN
        if isinstance(owner, torch.Tensor):
            if node.attr in ("T", "mT", "H", "mH", "real", "imag"):
                return self._compute(functools.partial(getattr, owner, node.attr), (), {}, (owner,))
            return getattr(owner, node.attr) if node.attr in _TENSOR_ATTRIBUTES else UNKNOWN
        return plain_attribute(owner, node.attr)

    def _tuple(self, node: ast.Tuple | ast.List) -> typing.Any:
        items: list[typing.Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = self._value(element.value)
                if not isinstance(inner, (list, tuple)):
                    return UNKNOWN
                items.extend(inner)
            else:
                items.append(self._value(element))
        if any(item is UNKNOWN for item in items):
            return UNKNOWN
        return tuple(items) if isinstance(node, ast.Tuple) else items

    _list = _tuple

    def _slice(self, node: ast.Slice) -> typing.Any:
        ends = [None if end is None else self._value(end) for end in (node.lower, node.upper, node.step)]
        return UNKNOWN if any(end is UNKNOWN for end in ends) else slice(*ends)

    def _subscript(self, node: ast.Subscript) -> typing.Any:
        owner, index = self._value(node.value), self._value(node.slice)
        if owner is UNKNOWN or index is UNKNOWN:
            return UNKNOWN
        if isinstance(owner, torch.Tensor):
            return self._compute(operator.getitem, (owner, index), {}, (owner,))
        if type(owner) in (list, tuple, dict, str, range, collections.OrderedDict, torch.Size) or _is_named_tuple(owner):
            return owner[index]
        if isinstance(owner, (torch.nn.ModuleList, torch.nn.Sequential)) and type(index) is int:
            return list(owner._modules.values())[index]
        if isinstance(owner, torch.nn.ModuleDict) and type(index) is str:
            return owner._modules[index]
        if isinstance(owner, collections.UserDict) and type(owner.data) is dict:  # transformers' BatchEncoding
            return owner.data[index]
        return UNKNOWN

    def _binop(self, node: ast.BinOp) -> typing.Any:
        left, right = self._value(node.left), self._value(node.right)
        function = _BINARY.get(type(node.op))
        if left is UNKNOWN or right is UNKNOWN or function is None:
            return UNKNOWN
        return self._operator(function, (left, right))

    def _unaryop(self, node: ast.UnaryOp) -> typing.Any:
        value = self._value(node.operand)
        return UNKNOWN if value is UNKNOWN else self._operator(_UNARY[type(node.op)], (value,))

    def _compare(self, node: ast.Compare) -> typing.Any:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            return UNKNOWN
        left, right = self._value(node.left), self._value(node.comparators[0])
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        return self._operator(_COMPARE[type(node.ops[0])], (left, right))

    def _operator(self, function: typing.Callable, values: tuple) -> typing.Any:
        if any(isinstance(value, torch.Tensor) for value in values):
            if not all(isinstance(value, (torch.Tensor, int, float, complex)) for value in values):
                return UNKNOWN
            return self._compute(function, values, {}, values)
        if all(type(value) in (int, float, bool, str, tuple, list, torch.Size) for value in values):
            if function is operator.pow and any(abs(value) > 64 for value in values):
                return UNKNOWN
            if function is operator.mul and not all(type(value) in (int, float, bool) for value in values):
                if max((value for value in values if type(value) is int), default=0) > 10_000:
                    return UNKNOWN
            return function(*values)
        return UNKNOWN

    def _ifexp(self, node: ast.IfExp) -> typing.Any:
        test = self._value(node.test)
        if type(test) not in (bool, int, type(None)):
            return UNKNOWN
        return self._value(node.body if test else node.orelse)

    def _call(self, node: ast.Call) -> typing.Any:
        positional: list[typing.Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                inner = self._value(argument.value)
                if not isinstance(inner, (list, tuple)):
                    return UNKNOWN
                positional.extend(inner)
            else:
                positional.append(self._value(argument))
        if any(keyword.arg is None for keyword in node.keywords):
            return UNKNOWN
        named = {keyword.arg: self._value(keyword.value) for keyword in node.keywords}
        if any(value is UNKNOWN for value in (*positional, *named.values())) or "out" in named:
            return UNKNOWN
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            if isinstance(owner, torch.Tensor):
                return self._method(owner, node.func.attr, tuple(positional), named)
        function = self._value(node.func)
        if isinstance(node.func, ast.Name) and function is getattr(builtins, node.func.id, UNKNOWN):
            plain = _BUILTINS.get(node.func.id)
            if plain is not None and all(_is_plain(value) for value in positional) and not named:
                return plain(*positional)
            if node.func.id == "len" and len(positional) == 1 and isinstance(positional[0], torch.Tensor):
                return positional[0].shape[0]
            return UNKNOWN
        name = getattr(function, "__name__", "")
        if function is UNKNOWN or not is_torch_function(function):
            return UNKNOWN
        if name in PURE or name in RANDOM_SHAPES:
            tensors = _tensors((*positional, *named.values()))
            return self._compute(function, tuple(positional), named, tensors, shape_only=name in RANDOM_SHAPES)
        return UNKNOWN

    def _method(self, owner: torch.Tensor, name: str, positional: tuple, named: dict) -> typing.Any:
        if name in _QUESTIONS:
            return getattr(owner, name)(*positional, **named)
        if name not in PURE and name not in RANDOM_SHAPES:
            return UNKNOWN
        tensors = (owner, *_tensors((*positional, *named.values())))
        function = getattr(torch.Tensor, name)
        return self._compute(function, (owner, *positional), named, tensors, shape_only=name in RANDOM_SHAPES)

    # -- computing ------------------------------------------------------------------------------

    def _compute(
        self, function: typing.Callable, positional: tuple, named: dict, tensors: typing.Sequence, shape_only: bool = False
    ) -> typing.Any:
        tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
            return UNKNOWN  # a subclass may run code of its own
        for_real = not shape_only and all(tensor.device.type == "cpu" for tensor in tensors)
        for_real = for_real and sum(tensor.numel() for tensor in tensors) <= MOST_ELEMENTS and not _is_large(positional)
        if not for_real:
            positional, named = _on_meta(positional), _on_meta(named)
            if not tensors or shape_only:
                named = {**{key: value for key, value in named.items() if key != "generator"}}
                if "_like" not in getattr(function, "__name__", "") and not tensors:
                    named["device"] = "meta"
        device = next((self.device_of(tensor) for tensor in tensors), str(torch.get_default_device()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program has been warned where it called it itself
            result = function(*positional, **named)
        for tensor in _tensors(result if isinstance(result, (tuple, list)) else (result,)):
            self.recomputed.add(id(tensor))
            self._kept.append(tensor)
            self._devices[id(tensor)] = device if tensor.is_meta else str(tensor.device)
        return result


def plain_attribute(owner: object, name: str) -> typing.Any:
    """An attribute that is simply stored: no property, no `__getattr__` of the user's."""
    if isinstance(owner, torch.nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            held = owner.__dict__.get(table, {})
            if name in held:
                return held[name]
    if isinstance(owner, types.ModuleType):
        return vars(owner).get(name, UNKNOWN)
    stored = getattr(owner, "__dict__", None)
    if isinstance(stored, dict) and not isinstance(owner, type) and name in stored:
        return stored[name]
    if isinstance(stored, dict) and isinstance(stored.get("data"), dict) and name in stored["data"]:  # BatchEncoding
        return stored["data"][name]
    if _is_named_tuple(owner) and name in owner._fields:  # type: ignore[attr-defined]
        return getattr(owner, name)
    for base in (owner if isinstance(owner, type) else type(owner)).__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return UNKNOWN if hasattr(found, "__get__") and not isinstance(owner, type) else found
    return UNKNOWN


def is_torch_function(function: object) -> bool:
    """One of torch's own functions, in C or Python (no class, no module instance)."""
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, type):
        return False
    if isinstance(function, types.BuiltinFunctionType):
        home = getattr(function, "__self__", None)
        owner = getattr(home, "__name__", "") or type(home).__name__
        return module.split(".")[0] == "torch" or "torch" in owner or "_VariableFunctions" in owner
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):  # torch.Tensor.add
        return function.__objclass__.__module__.split(".")[0] == "torch"
    return callable(function) and module.split(".")[0] == "torch" and isinstance(function, types.FunctionType)


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _is_plain(value: object, depth: int = 3) -> bool:
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) < 10_000 and all(_is_plain(item, depth - 1) for item in value)
    return type(value) in _PLAIN or type(value) is bool


def _is_large(values: object) -> bool:
    """A constructor asked for more elements than are worth computing."""
    numbers = [value for value in values if type(value) is int] if isinstance(values, tuple) else []
    for value in values if isinstance(values, tuple) else ():
        if isinstance(value, (tuple, list)):
            numbers += [item for item in value if type(item) is int]
    product = 1
    for number in numbers:
        product *= max(1, abs(number))
    return product > 100 * MOST_ELEMENTS


def _tensors(values: typing.Iterable) -> tuple[torch.Tensor, ...]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(_tensors(value))
    return tuple(found)


def _on_meta(value: typing.Any) -> typing.Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {key: _on_meta(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_on_meta(item) for item in value)
    return value
