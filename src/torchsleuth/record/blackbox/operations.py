"""The operators whose CUDA kernels assert on the values they are given, and which values those are.

Only operators with a kernel of their own are listed: `embedding` runs `index_select`, `one_hot` runs `scatter_`,
`x[i] = v` runs `_index_put_impl_`, `cross_entropy` runs `nll_loss_forward`, and watching both would pay twice.
"""

from __future__ import annotations

import enum
import typing


class Allows(enum.Enum):
    """What the kernel asserts of the watched values."""

    ROWS = "rows"  # 0 … size of the table's first dimension - 1
    ALONG_DIM = "along dim"  # 0 … size of dimension `dim` - 1
    ALONG_DIM_SIGNED = "along dim, from the end too"  # -size … size - 1
    INDEXED = "indexed"  # x[i, :, j]: one tensor per indexed dimension, -size … size - 1
    ELEMENTS = "elements"  # -numel … numel - 1
    CLASSES = "classes"  # 0 … size of the class dimension - 1, or `ignore_index`
    PROBABILITY = "probability"  # 0 … 1
    WEIGHT = "weight"  # not negative, finite
    OUTPUT_AREA = "output area"  # 0 … product of `output_size` - 1
    AT_MOST_SOURCE = "at most the source"  # a mask: no more True than the source has elements
    TRUE = "true"  # the value itself is asserted
    COMPILED = "compiled"  # what the generated code asserts is said by the assertion alone


class Watched(typing.NamedTuple):
    operator: str  # the overload, as the dispatcher names it
    name: str  # as the documentation calls it
    allows: Allows
    values: tuple[int, ...]  # positions of the arguments whose values are asserted
    table: int = 0  # position of the tensor that sets the range
    dim: int | None = None  # position of the dimension
    number: int | None = None  # position of another number that sets the range: ignore_index, output_size
    one: bool = True  # one tensor is watched, and given as such

    @property
    def is_out(self) -> bool:
        """The form with `out=`, which the plain one may well run within itself."""
        return self.operator.endswith(("out", "output"))


def _along(allows: Allows, *operators: str) -> tuple[Watched, ...]:
    return tuple(Watched(o, o.partition(".")[0], allows, (2,), dim=1) for o in operators)


# Seen at the entrance of `torch.nn.functional.embedding`, where Python can tell (see `box`), else as `index_select`.
EMBEDDING = Watched("embedding", "embedding", Allows.ROWS, (1,))

# A call of a compiled function. The last of its noted arguments says where in the call the tensors stand.
COMPILED = Watched("compiled", "compiled code", Allows.COMPILED, (), number=-1, one=False)

_SCATTERS = ("scatter.value", "scatter.src", "scatter.reduce", "scatter.value_reduce")

_FORMS: tuple[Watched, ...] = (
    *_along(Allows.ALONG_DIM, "index_select", "gather", "index_add", "index_add_", "index_copy", "index_copy_", "index_reduce",
            "index_reduce_", "scatter_add", "scatter_add_", "scatter_reduce.two", "scatter_reduce_.two"),
    *_along(Allows.ALONG_DIM, *_SCATTERS, *(name.replace("scatter.", "scatter_.") for name in _SCATTERS)),
    *_along(Allows.ALONG_DIM_SIGNED, "index_fill_.int_Scalar", "index_fill_.int_Tensor"),
    Watched("_embedding_bag", "embedding_bag", Allows.ROWS, (1,)),
    Watched("_embedding_bag_forward_only", "embedding_bag", Allows.ROWS, (1,)),
    Watched("index.Tensor", "__getitem__", Allows.INDEXED, (1,), one=False),
    Watched("_index_put_impl_", "__setitem__", Allows.INDEXED, (1,), one=False),
    Watched("take", "take", Allows.ELEMENTS, (1,)),
    Watched("put_", "put_", Allows.ELEMENTS, (1,)),
    Watched("nll_loss_forward", "nll_loss", Allows.CLASSES, (1,), number=4),
    Watched("nll_loss2d_forward", "nll_loss", Allows.CLASSES, (1,), number=4),
    Watched("multi_margin_loss", "multi_margin_loss", Allows.CLASSES, (1,)),
    Watched("binary_cross_entropy", "binary_cross_entropy", Allows.PROBABILITY, (0, 1), one=False),
    Watched("bernoulli_.Tensor", "bernoulli", Allows.PROBABILITY, (1,)),
    Watched("multinomial", "multinomial", Allows.WEIGHT, (0,)),
    Watched("max_unpool2d", "max_unpool2d", Allows.OUTPUT_AREA, (1,), number=2),
    Watched("max_unpool3d", "max_unpool3d", Allows.OUTPUT_AREA, (1,), number=2),
    Watched("masked_scatter_", "masked_scatter", Allows.AT_MOST_SOURCE, (1,), table=2),
    Watched("_assert_async", "_assert_async", Allows.TRUE, (0,)),
    Watched("_assert_async.msg", "_assert_async", Allows.TRUE, (0,)),
)  # fmt: skip

# `out=` makes another overload of the same arguments: by the overload that it belongs to.
_OUT = {
    **{name: f"{name}.out" for name in (
        "index_select", "gather", "index_add", "index_copy", "index_reduce", "scatter_add", "take", "multinomial",
        "multi_margin_loss", "binary_cross_entropy", "max_unpool2d", "max_unpool3d",
    )},
    **{name: f"{name}_out" for name in (*_SCATTERS, "scatter_reduce.two", "index.Tensor")},
    "nll_loss_forward": "nll_loss_forward.output",
    "nll_loss2d_forward": "nll_loss2d_forward.output",
}  # fmt: skip

WATCHED: tuple[Watched, ...] = (*_FORMS, *(form._replace(operator=_OUT[form.operator]) for form in _FORMS if form.operator in _OUT))


class Legal(typing.NamedTuple):
    """The range that one watched tensor must keep, both ends included."""

    low: float | int
    high: float | int
    limit: str  # in the words of `evidence_forward.ValueRange`
    ignored: int | None = None


def legal(
    watched: Watched, shape: tuple[int, ...], dim: int | None, number: typing.Any, axis: int | None
) -> Legal | None:
    """The range, from the shape of the tensor that sets it; None where the call does not say. `axis`: for `x[i, j]`."""
    allows = watched.allows
    if allows is Allows.ROWS:
        return Legal(0, shape[0] - 1, "rows") if shape else None
    if allows in (Allows.ALONG_DIM, Allows.ALONG_DIM_SIGNED):
        if dim is None or not -max(1, len(shape)) <= dim < max(1, len(shape)):
            return None
        size = shape[dim] if shape else 1
        return Legal(-size if allows is Allows.ALONG_DIM_SIGNED else 0, size - 1, f"dimension {dim % max(1, len(shape))}")
    if allows is Allows.INDEXED:
        return Legal(-shape[axis], shape[axis] - 1, f"dimension {axis}") if axis is not None and axis < len(shape) else None
    if allows is Allows.ELEMENTS:
        return Legal(-_product(shape), _product(shape) - 1, "elements")
    if allows is Allows.CLASSES:
        if not shape:
            return None
        return Legal(0, shape[1 if len(shape) > 1 else 0] - 1, "classes", number if isinstance(number, int) else None)
    if allows is Allows.PROBABILITY:
        return Legal(0, 1, "probability")
    if allows is Allows.WEIGHT:
        return Legal(0, 3.5e38, "weight")
    if allows is Allows.OUTPUT_AREA:
        return Legal(0, _product(number) - 1, "elements") if isinstance(number, (list, tuple)) else None
    return None


def _product(sizes: typing.Iterable[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count
