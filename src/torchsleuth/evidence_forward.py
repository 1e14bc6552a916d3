"""What is known about a torch operation that failed: its operands, where their sizes and values came from.

A section of `Evidence` (`operation`), filled by `capture/investigations/operation.py`: frozen plain data.
"""

from __future__ import annotations

from torchsleuth.evidence_parts import Place, TensorFact
from torchsleuth.frozen import frozen
from torchsleuth.model import Known


@frozen
class Made:
    """The expression of the program in which a tensor, a size or a value first appeared."""

    operation: str  # "randn", "pad", "Linear", …; "loop", "constant", "argument", "value" for plain Python values; "mask" for one that left nothing, "length" for what `__len__` returns, "layer" for a convolution, "copied" for a call that a number of plain Python's only passed
    place: Place
    complete: bool = True  # False: the trail ends here, the thing itself is older
    given: Made | None = None  # the caller's expression that gave the number, where it came as an argument


@frozen
class SizeOrigin:
    axis: int
    size: int
    made: Made
    parts: tuple[SizeOrigin, ...] = ()  # for a dimension that a view has joined of several: theirs
    terms: tuple[SizeOrigin, ...] = ()  # for a dimension along which tensors were joined (`cat`): theirs


@frozen
class Divided:
    """A size of a feature map that did not divide by what pooling or a stride divided it by."""

    axis: int
    before: int
    after: int
    times: int
    made: Made


@frozen
class BadValue:
    position: tuple[int, ...]
    value: float


@frozen
class ValueRange:
    """The values of an operand against the range that the operation allows, both ends included."""

    low: float
    high: float
    limit: str  # what sets the range: "rows", "classes", "dimension 1", "num_classes", "probability"
    total: int
    bad: int
    first: tuple[BadValue, ...]
    minimum: float
    maximum: float
    ignored: int | None = None  # ignore_index
    distinct: tuple[float, ...] = ()  # the bad values, a few of them
    kinds: int = 0  # how many different values there are, ignored ones not counted; 0 where nobody counted
    at_least: bool = False  # only the least and the greatest value are known: there may be more bad ones than counted
    in_dataset: tuple[int, int, int] | None = None  # the smallest, the largest and the number of different labels of the whole dataset, where it was seen

    @property
    def counts_from_one(self) -> bool:
        """Every number from 1 to the first illegal one occurs (in this batch, or in the dataset), and no other: they count from 1."""
        from_end = -self.high - 1  # where indices may count from the end, too
        if self.in_dataset is not None and self.low == 0:
            return self.in_dataset == (1, self.high + 1, self.high + 1)
        return self.low in (0, from_end) and self.maximum == self.high + 1 == self.kinds and self.minimum in (1, self.ignored)


@frozen
class NotFinite:
    """Where NaN or infinity in an operand came from."""

    kind: str  # "made" by a call, when it was computed again; held by "weights"; "given" by a variable that holds it already; "suspected": the one call behind it that can make NaN
    operation: str = ""  # the call that made it
    made: Made | None = None  # where; for weights, what wrote them last
    why: str = ""  # what about the inputs of that call explains it
    name: str = ""  # of the weights, or the variable
    what: str = "NaN"  # or "infinity"
    bad: int = 0  # how many of its
    total: int = 0  # elements
    first: tuple[int, ...] = ()
    others: tuple[int, int] = (0, 0)  # how many of how many parameters hold such numbers
    gradient: bool = False  # so does the gradient of these weights
    infinite: Made | None = None  # the call that made (or put there) the infinity that NaN was made of
    infinite_why: str = ""


@frozen
class Operand:
    """A tensor that went into the operation."""

    argument: str  # as the operation calls it: "input", "weight", "index", "tensors[1]"
    source: str  # the program's expression for it, "" where there is none in sight
    place: Place | None  # where that expression stands
    tensor: TensorFact
    known: Known
    contiguous: bool = True
    made: Made | None = None  # the expression that made this tensor
    chain: tuple[Made, ...] = ()  # from there back, newest first, as far as the log carries
    formed: Made | None = None  # the call that gave it its shape: what follows kept it
    input_made: Made | None = None  # the far end of that chain: what all of it was computed from
    input_sizes: tuple[SizeOrigin, ...] = ()  # where that one has its sizes from
    turned: Made | None = None  # for a tensor that is not contiguous: the call after which its memory is read in another order
    sizes: tuple[SizeOrigin, ...] = ()
    dtype_made: Made | None = None  # where its dtype first appeared
    promoted: Made | None = None  # the call on the way from there in which tensors of two dtypes met, and this one was kept
    device_made: Made | None = None
    lowered: Made | None = None  # the call in which `torch.autocast` gave its dtype to operands of another one
    values: ValueRange | None = None
    value_made: Made | None = None  # where the first bad value came from
    kept: Made | None = None  # what a module's class sets the plain attribute to that it is, or is a part of; "layers", "new layer": what holds or makes its layer, which the model does not own
    not_finite: NotFinite | None = None  # where NaN or infinity in it came from, where the error is about values
    carried_by: str = ""  # for a tensor of the user's call: the argument of the failing operation that has its values from it
    divided: tuple[Divided, ...] = ()  # on the way from `input_made`, newest first: sizes that were divided and left a rest

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def called(self) -> str:
        """What the user calls it: the expression, the name, or the operation's own word."""
        if self.source:
            return f"`{shortened(self.source)}`"
        if self.tensor.name:
            return f"`{self.tensor.name}`"
        if "[" in self.argument:
            return f"`{self.argument}`"
        return f"its {self.argument}" if self.argument else self.tensor.called

    def origin_of(self, axis: int) -> Made | None:
        axis = axis + len(self.shape) if axis < 0 else axis
        return next((origin.made for origin in self.sizes if origin.axis == axis), None)

    def input_for(self, axis: int) -> Made | None:
        """The input behind a feature map, with the number behind its size at the same axis, counted from the last."""
        axis = axis - len(self.shape) if axis >= 0 else axis
        found = next((origin.made for origin in self.input_sizes if origin.axis == axis + len(self.input_sizes)), None)
        return found or self.input_made

    def parts_of(self, axis: int) -> tuple[SizeOrigin, ...]:
        """The dimensions that this one was joined of, or itself."""
        axis = axis + len(self.shape) if axis < 0 else axis
        found = next((origin for origin in self.sizes if origin.axis == axis), None)
        return () if found is None else found.parts or (found,)

    def terms_of(self, axis: int) -> tuple[SizeOrigin, ...]:
        """The sizes that add up to this one, where tensors were joined along it."""
        axis = axis + len(self.shape) if axis < 0 else axis
        return next((origin.terms for origin in self.sizes if origin.axis == axis), ())


@frozen
class Argument:
    """A number, list or flag that went into the operation."""

    name: str
    source: str
    value: str
    place: Place | None
    made: Made | None = None
    numbers: tuple[int, ...] = ()  # the value as integers, where it is one or several


@frozen
class Foreign:
    """What was given where a tensor is wanted: a tuple, None, a list, an array."""

    argument: str  # as the operation calls it, "" for what an attribute was asked of
    source: str  # the program's expression for it, "" where there is none in sight
    kind: str  # "tuple", "list", "dict", "None", "array", "number", "text", "tensor", "object"
    words: str  # what it is: "a tuple of 2 tensors, each [3, 4]"
    place: Place | None
    parts: tuple[str, ...] = ()  # the names under which its parts can be had
    shapes: tuple[tuple[int, ...] | None, ...] = ()  # of its parts, in their order; None for one that is no tensor
    made: Made | None = None  # the expression that it was bound to
    maker: str = ""  # the layer's class or the function that returned it
    story: str = ""  # "layer", "chain" (the layer before, in a Sequential), "returns" (several), "no return", "comma"
    layer_made: Made | None = None  # that layer's constructor, or what the function returns
    taker: str = ""  # in a Sequential, the class of the layer that refused it
    taker_made: Made | None = None


@frozen
class Earlier:
    """What the failing layer has taken before."""

    shape: tuple[int, ...]  # of the newest
    times: int


@frozen
class CutShort:
    """A sample that is a slice of a tensor of the dataset's, and ends behind its last value."""

    place: Place  # the slice
    sample: int
    stop: int  # where it was to end
    size: int  # and how many values there are
    base: str  # `self.series`
    terms: tuple[str, ...]  # what is added to the sample's number for the end of its slice
    promised: Made  # what the dataset's `__len__` returns


@frozen
class NoParameters:
    """An optimizer was given none: the model that they were asked of."""

    model: str  # as the program calls it
    kind: str  # its class
    count: int  # of the parameters that it has all the same: an iterator over them was used up before
    attribute: str = ""  # `self.layers`, in which it keeps layers that it does not own
    holder: str = ""  # "list", "dict"
    held: int = 0  # how many modules are in it
    kinds: tuple[str, ...] = ()  # and of which classes
    layers: Place | None = None  # where that attribute is set
    iterator: Place | None = None  # `net.parameters()`, where it was kept


@frozen
class Entered:
    """The one tensor that the user's outermost call of a module gave it."""

    place: Place
    shape: tuple[int, ...]
    training: bool


@frozen
class Mapping:
    """The `vmap` that a function ran under, or was to."""

    call: Place  # the program's call of what `vmap` has returned
    made: Made | None  # the `vmap(...)` itself
    within: bool  # it failed in the mapped function: shapes are without the mapped dimension. False: before that was called, or after
    in_dims: str = ""  # as it was given, where it is a number, None or a tuple of those
    given: int = 0  # how many arguments the call has
    fitting: str = ""  # the `in_dims` for these arguments, where they alone say it


@frozen
class IndexItem:
    """One element of `x[a, b, …]`."""

    source: str
    kind: str  # "int", "slice", "none", "ellipsis", "tensor", "mask", "list", "float", "other"
    place: Place | None
    axis: int | None  # the first axis of `x` it applies to; None for `None`, and where it is not known
    value: int | None = None
    size: int | None = None  # of that axis
    made: Made | None = None
    shape: tuple[int, ...] = ()
    operand: int | None = None  # position among the operands, for a tensor
    sample: tuple[str, int, str] | None = None  # the number of the sample that a DataLoader asked for: its name, itself, and the sum that it is a term of

    @property
    def promised(self) -> Made | None:
        """The length of the dataset from which the number of the sample was taken."""
        made = self.made
        while made is not None and made.operation != "length":
            made = made.given
        return made


@frozen
class KeyMismatch:
    """A parameter whose shape in the checkpoint is not that in the model."""

    key: str
    saved: tuple[int, ...]
    model: tuple[int, ...]
    made: Made | None = None  # the constructor call of the layer that holds it
    saved_made: Made | None = None  # where the program itself has made the entry of the checkpoint


@frozen
class RefusedState:
    """What `load_state_dict` refused."""

    place: Place
    module: str  # what the user calls the module
    kind: str  # its class
    mismatches: tuple[KeyMismatch, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    keys: int  # how many entries the dictionary has
    nested: str = ""  # the key of the dictionary under which another one holds what is missing
    module_made: Made | None = None


@frozen
class FailedOperation:
    """The torch call that raised."""

    name: str  # "mul", "embedding", "cross_entropy"
    place: Place  # the program's innermost expression, with `via` the user's own where that is a library's
    operands: tuple[Operand, ...]
    arguments: tuple[Argument, ...] = ()
    index: tuple[IndexItem, ...] = ()
    call_operands: tuple[Operand, ...] = ()  # further tensors in the program's own call, and in the user's around it
    module: str = ""  # dotted path of the module in whose forward it failed
    module_type: str = ""
    module_made: Made | None = None  # its constructor call
    module_sizes: tuple[SizeOrigin, ...] = ()  # the sizes of its own parameters, each once, and where the numbers came from
    computed_from: tuple[Made, ...] = ()  # where its size was computed: the numbers behind the factors that its input does not have
    not_counted: tuple[SizeOrigin, ...] = ()  # of an input that was joined of several: the terms that are not in the sum behind the layer's size
    type: str = ""  # of the exception torch raised first, where another one wraps it
    message: str = ""
    wrapper: str = ""  # "torch.compile", "TorchScript", "a DataLoader worker", "vmap", where one stands around it
    sample: str = ""  # which sample of the dataset was at hand, in words
    sample_made: Made | None = None  # what the dataset's `__getitem__` returns for the failing tensors
    observed: bool = False  # the log saw the call
    raised_in_python: bool = False  # torch's own Python code raised, after a check
    config: tuple[tuple[str, int], ...] = ()  # sizes in the model's configuration: max_position_embeddings, …
    container_made: Made | None = None  # where that container was made
    container: str = ""  # for Python's own indexing errors: what was indexed ("a list of 3 tensors")
    training: bool | None = None  # the failing module's mode
    fitting: int | None = None  # the size of the model's input that, in place of the one number behind the layer's size, gives what it needs
    both_directions: bool = False  # the first operand's last size comes from a bidirectional recurrent layer
    refused_by: str = ""  # a library whose own check of sizes raised: no operation of torch's has failed then
    said: tuple[int, ...] = ()  # the numbers that such a check names
    said_made: tuple[SizeOrigin, ...] = ()  # those of them that the program has set in the making of the model
    foreign: Foreign | None = None  # what stood where a tensor is wanted
    mapped: Mapping | None = None  # the `vmap` around it
    took: Earlier | None = None
    cut_short: CutShort | None = None
    no_parameters: NoParameters | None = None
    entered: Entered | None = None  # with what the program came into the outermost module that was running
    inside: str = ""  # the custom backward or hook in whose code it failed, where it did
    forward_call: Place | None = None  # and the forward call that belongs to it

    def operand(self, *arguments: str) -> Operand | None:
        """The operand under the first of these argument names that is there."""
        for name in arguments:
            for operand in self.operands:
                if operand.argument == name:
                    return operand
        return None

    def argument(self, *names: str) -> Argument | None:
        for name in names:
            for argument in self.arguments:
                if argument.name == name:
                    return argument
        return None

    def made_for(self, size: int) -> Made | None:
        """The layer's constructor call, with the expressions that gave it this number behind it."""
        sizes = (origin.made for origin in self.module_sizes if origin.size == size)
        return next(sizes, self.module_made)

    def given_for(self, operand: Operand) -> Operand:
        """The tensor in the user's own call that holds the same bad values, where a library stands in between."""
        return next((own for own in self.call_operands if own.carried_by == operand.argument and own.values is not None), operand)

    def listed(self, name: str) -> tuple[Operand, ...]:
        """The elements of a list argument: `tensors[0]`, `tensors[1]`, …"""
        return tuple(operand for operand in self.operands if operand.argument.startswith(f"{name}["))


def shortened(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
