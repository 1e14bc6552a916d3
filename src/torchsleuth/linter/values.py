"""What the interpreter knows about a name: the abstract values of lint, and what torch's functions make of them.

A value is only called a tensor where the source shows it (a torch constructor or operation, an annotation,
an attribute only tensors have). Whatever is not shown is `UNKNOWN`, and rules abstain on it.
"""

from __future__ import annotations

import ast

from torchsleuth.linter.saved_table import SAVED


class Storage:
    """Memory that one or more tensors (views) share: what was kept of it for backward."""

    __slots__ = ("saves", "expanded")

    def __init__(self) -> None:
        self.saves: list[Save] = []


class Save:
    """An operation kept this memory for backward; `result` is what it computed."""

    __slots__ = ("node", "result", "operator", "what", "time", "value", "if_recorded")

    def __init__(self, node, result, operator, what, time, value, if_recorded=False) -> None:
        self.node, self.result, self.operator, self.what, self.time, self.value = node, result, operator, what, time, value
        self.if_recorded = if_recorded  # certain as soon as the result has a history: only one operand can have given it that


class Value:
    __slots__ = ("kind", "path", "node", "dtype", "grad", "leaf", "shape", "ndim", "storage", "op", "inputs", "items",
                 "extra", "expanded", "assumed", "unrecorded")  # fmt: skip

    def __init__(self, kind: str, node: ast.AST | None = None, path: str = "") -> None:
        self.kind = kind
        self.node = node
        self.path = path
        self.dtype: str | None = None  # "float" | "int" | "bool"
        self.grad: bool | None = None  # does it require a gradient
        self.leaf = False
        self.shape: tuple | None = None  # of ints, names of sizes, or None
        self.ndim: int | None = None
        self.storage: Storage | None = None
        self.op = ""  # the operation that made it
        self.inputs: tuple[Value, ...] = ()
        self.items: list[Value] | None = None
        self.extra: dict | None = None
        self.expanded = False
        self.unrecorded: ast.AST | None = None  # the `no_grad` under which it was computed from something with a gradient
        self.assumed = False  # a tensor by convention only (an argument of `forward`)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path or self.op} dtype={self.dtype} grad={self.grad} ndim={self.ndim}>"

    @property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"


UNKNOWN = Value("unknown")
NONE = Value("none")


def path_value(path: str) -> Value:
    return Value("path", None, path)


def number(node: ast.AST | None = None, op: str = "", inputs: tuple[Value, ...] = ()) -> Value:
    value = Value("number", node)
    value.op, value.inputs = op, inputs
    return value


def tensor(node: ast.AST | None, op: str = "", inputs: tuple[Value, ...] = ()) -> Value:
    value = Value("tensor", node)
    value.op, value.inputs, value.storage = op, inputs, Storage()
    return value


# Constructors: a fresh tensor, no gradient unless `requires_grad=True`.
SIZED = frozenset("zeros ones empty rand randn full".split())
LIKE = frozenset("zeros_like ones_like empty_like rand_like randn_like full_like randint_like".split())
CONSTRUCTORS = SIZED | LIKE | frozenset(
    "tensor as_tensor from_numpy arange linspace logspace eye randint randperm normal bernoulli multinomial "
    "FloatTensor LongTensor IntTensor BoolTensor DoubleTensor HalfTensor Tensor empty_strided tril_indices "
    "triu_indices hann_window hamming_window".split()
)  # fmt: skip
NEW = frozenset("new_zeros new_ones new_empty new_full new_tensor".split())
INT_RESULT = frozenset(
    "argmax argmin argsort nonzero long int multinomial randint randperm bincount searchsorted bucketize LongTensor "
    "IntTensor count_nonzero one_hot short byte".split()
)
BOOL_RESULT = frozenset(
    "eq ne lt gt le ge isnan isinf isfinite logical_and logical_or logical_not logical_xor any all isin bool BoolTensor "
    "isclose greater less signbit".split()
)
# The gradient stops here, in the way the word says.
BREAKS = {
    "item": "number", "tolist": "number", "numpy": "numpy", "detach": "detach", "argmax": "index", "argmin": "index",
    "argsort": "index", "long": "integer", "int": "integer", "bool": "comparison", "eq": "comparison", "ne": "comparison",
    "lt": "comparison", "gt": "comparison", "le": "comparison", "ge": "comparison", "tensor": "copy", "as_tensor": "copy",
    "greater": "comparison", "less": "comparison", "from_numpy": "copy", "one_hot": "integer", "data": "detach",
}  # fmt: skip
VIEWS = frozenset(
    "view view_as transpose permute unsqueeze squeeze select narrow expand expand_as broadcast_to diagonal unbind split "
    "chunk t swapaxes swapdims movedim moveaxis unfold T mT H detach unflatten tensor_split hsplit vsplit data real imag "
    "as_strided".split()
)
# A view where the layout allows it, a copy otherwise: writes through them are neither certain to alias nor not.
MAYBE_VIEWS = frozenset("reshape flatten contiguous to float double half ravel type cuda cpu reshape_as expand_copy".split())
EXPANDERS = frozenset("expand expand_as broadcast_to".split())
# Methods and attributes that tell a tensor from an array, a list or a number.
TENSOR_ONLY = frozenset(
    "unsqueeze unsqueeze_ requires_grad requires_grad_ grad_fn backward detach detach_ contiguous permute masked_fill "
    "masked_fill_ index_select scatter scatter_ scatter_add scatter_add_ new_zeros new_ones new_full new_tensor new_empty "
    "sigmoid softmax log_softmax device numel view view_as expand expand_as is_cuda cuda cpu is_contiguous data_ptr zero_ "
    "fill_ add_ mul_ sub_ div_ copy_ clamp clamp_ clamp_min relu relu_ tanh bmm matmul mm gather index_add index_add_ "
    "index_put_ index_put index_copy_ logsumexp retain_grad is_floating_point narrow chunk unbind baddbmm exp_ pow_ "
    "amax amin rsqrt logical_not eq ne lt gt le ge bool long float half to type_as new_tensor grad tril triu topk".split()
) - frozenset({"to", "float", "half", "device"})
TENSOR_METHODS = TENSOR_ONLY | VIEWS | MAYBE_VIEWS | NEW | INT_RESULT | BOOL_RESULT | frozenset(
    "sum mean std var prod max min median norm abs exp log sqrt pow sin cos clone item tolist numpy size dim cumsum "
    "cumprod add sub mul div neg sign round floor ceil erf gelu repeat repeat_interleave sort where roll flip dot mv "
    "log1p log2 log10 expm1 square reciprocal index_fill take addmm cross dist softplus masked_select type any all "
    "fill_diagonal_ to float half double argmax argmin argsort nonzero cummax cummin sigmoid_ tanh_ exp_ atan2 "
    "unique renorm addcmul addcdiv lerp outer inner".split()
)  # fmt: skip
NOT_OPERATIONS = frozenset(
    "size dim numel stride is_floating_point is_contiguous data_ptr element_size nelement get_device storage_offset "
    "is_complex ndimension is_cuda untyped_storage storage".split()
)
RANDOM = frozenset(
    "dropout bernoulli rand randn rand_like randn_like randint_like multinomial randint normal randperm poisson dropout1d dropout2d dropout3d "
    "alpha_dropout feature_dropout gumbel_softmax rrelu".split()
)
# Tensor functions found directly below `torch`, by way of the derivative table and the lists above.
TORCH_OPERATIONS = frozenset(name.split("/")[0] for name in SAVED) | INT_RESULT | BOOL_RESULT | frozenset(
    "where stack cat concat hstack vstack dstack clone detach maximum minimum cosine_similarity one_hot embedding relu "
    "sigmoid tanh softmax log_softmax matmul bmm einsum clamp rsqrt mse_loss l1_loss cross_entropy nll_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits smooth_l1_loss kl_div huber_loss normalize pad dropout".split()
)  # fmt: skip
LOSS_MODULES = frozenset(
    "MSELoss L1Loss CrossEntropyLoss NLLLoss BCELoss BCEWithLogitsLoss SmoothL1Loss HuberLoss KLDivLoss CTCLoss "
    "CosineEmbeddingLoss MarginRankingLoss TripletMarginLoss GaussianNLLLoss PoissonNLLLoss HingeEmbeddingLoss "
    "MultiLabelMarginLoss SoftMarginLoss MultiMarginLoss MultiLabelSoftMarginLoss".split()
)
# Modules with parameters: what they return requires a gradient in training.
PARAMETRIC = frozenset(
    "Linear Bilinear Embedding EmbeddingBag Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LayerNorm "
    "BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm RMSNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d PReLU "
    "LazyLinear LazyConv2d SyncBatchNorm".split()
)
# Modules that return tuples, or whose result is not one tensor.
TUPLE_MODULES = frozenset("LSTM GRU RNN LSTMCell MultiheadAttention".split())
# Module class -> the function whose saving behaviour it has.
MODULE_FUNCTION = {
    "Linear": "linear", "Sigmoid": "sigmoid", "Tanh": "tanh", "ReLU": "relu", "Softmax": "softmax", "LogSoftmax":
    "log_softmax", "GELU": "gelu", "SiLU": "silu", "ELU": "elu", "LeakyReLU": "leaky_relu", "LayerNorm": "layer_norm",
    "Dropout": "dropout", "Softplus": "softplus", "Hardtanh": "hardtanh", "ReLU6": "relu6", "SELU": "selu", "Mish": "mish",
    "Conv1d": "conv1d", "Conv2d": "conv2d", "Conv3d": "conv3d", "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm",
    "BatchNorm3d": "batch_norm", "GroupNorm": "group_norm", "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid",
    "CELU": "celu", "Embedding": "embedding", "Identity": "identity", "Flatten": "flatten", "MaxPool2d": "max_pool2d",
    "AvgPool2d": "avg_pool2d",
}  # fmt: skip
INPLACE_CAPABLE = frozenset(
    "relu elu leaky_relu dropout silu hardtanh relu6 selu celu hardswish hardsigmoid mish threshold rrelu feature_dropout "
    "alpha_dropout dropout2d dropout3d".split()
)
BINARY_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.Mod: "remainder", ast.FloorDiv: "floor_divide", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip
COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def kept_if_recorded(op: str, tensors: tuple[Value, ...], has_dim: bool, with_number: bool) -> set[int | str]:
    """What `op` is certain to keep if its result has a history, where only one of its operands can have one."""
    open_ones = [t for t in tensors if t.grad is None]
    if len(open_ones) != 1 or any(t.grad for t in tensors):
        return set()
    open_ones[0].grad = True
    try:
        return {name for name, sure in kept_tensors(op, tensors, has_dim, with_number) if sure}
    finally:
        open_ones[0].grad = None


def kept_tensors(op: str, tensors: tuple[Value, ...], has_dim: bool, with_number: bool) -> list[tuple[int | str, bool]]:
    """What `op` keeps for backward: argument numbers and "r", each with whether that is certain.

    It depends on which argument requires a gradient; where that is unknown, the entry is not certain.
    """
    row = SAVED.get(f"{op}/dim") if has_dim else SAVED.get(f"{op}/number") if with_number else None
    if row is None:
        row = SAVED.get(op)
    if row is None:
        return []
    kept: dict[int | str, bool] = {}
    for position, names in row.items():
        if position >= len(tensors) or tensors[position].grad is False:
            continue
        for name in names:
            kept[name] = kept.get(name, False) or tensors[position].grad is True
    return [(name, sure) for name, sure in kept.items() if name == "r" or name < len(tensors)]
