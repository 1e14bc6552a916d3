"""Messages of gather, scatter, index_add, take and one_hot."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, call, raising, reads, running, shape


@reads(
    r"Size does not match at dimension (?P<at>\d+) expected index \[(?P<index>[\d, ]*)\] to be no larger than self "
    r"\[(?P<self>[\d, ]*)\] apart from dimension (?P<dim>\d+)",
    example="RuntimeError: Size does not match at dimension 0 expected index [5, 2] to be no larger than self [3, 4] apart from "
    "dimension 1",
    fragments=(r"expected index .{0,40}to be no larger than self",),
)
def gather_shape(found: Found) -> Reading:
    at, index, own, dim = found.int("at"), found.ints("index"), found.ints("self"), found.int("dim")
    return Reading(
        f"`gather` got an index of shape {shape(index)} for a tensor of shape {shape(own)}",
        f"`x.gather({dim}, index)` picks along dimension {dim} only; in every other dimension the index may not be larger than "
        f"the tensor. In dimension {at} the index has {index[at]} and the tensor {own[at]}.",
        (
            f"`dim` is wrong: the index was made for another dimension than {dim}.",
            "The index has the sizes of another batch, or its dimensions are in another order.",
        ),
        raising(
            f"x = torch.zeros({call(own)})",
            f"x.gather({dim}, torch.zeros({call(index)}, dtype=torch.long))",
            raises=f"RuntimeError: Size does not match at dimension {at} expected index {shape(index)} to be no larger than self "
            f"{shape(own)} apart from dimension {dim}",
        ),
        ("Give the index the tensor's sizes except in `dim`; to pick one per row: `x.gather(1, ids.unsqueeze(1)).squeeze(1)`.",),
        running(
            "x = torch.arange(12.0).reshape(3, 4)",
            "ids = torch.tensor([0, 3, 1])",
            "print(x.gather(1, ids.unsqueeze(1)).squeeze(1).tolist())",
            prints="[0.0, 7.0, 9.0]",
        ),
    )


@reads(
    r"Expected index \[(?P<index>[\d, ]*)\] to be no larger than self \[(?P<self>[\d, ]*)\] apart from dimension (?P<dim>\d+) and to "
    r"be no larger size than src \[(?P<src>[\d, ]*)\]",
    example="RuntimeError: Expected index [3, 5] to be no larger than self [3, 4] apart from dimension 1 and to be no larger size than "
    "src [3, 4]",
)
def scatter_shape(found: Found) -> Reading:
    index, own, dim, src = found.ints("index"), found.ints("self"), found.int("dim"), found.ints("src")
    wrong = [f"dimension {d}: index {n}, src {src[d]}" for d, n in enumerate(index) if d < len(src) and n > src[d]]
    wrong += [f"dimension {d}: index {n}, tensor {own[d]}" for d, n in enumerate(index) if d != dim and d < len(own) and n > own[d]]
    return Reading(
        f"`scatter` got an index of shape {shape(index)} for a tensor {shape(own)} and a source {shape(src)}",
        f"`x.scatter({dim}, index, src)` writes `src` where `index` says, one element of each at a time: the index may be no "
        f"larger than `src` in any dimension, and no larger than `x` in any but dimension {dim}. Too large here: "
        f"{'; '.join(wrong) or 'see the shapes'}.",
        ("Index and source were made with different lengths.", f"`dim={dim}` is not the dimension the index was made for."),
        raising(
            f"x = torch.zeros({call(own)})",
            f"x.scatter_({dim}, torch.zeros({call(index)}, dtype=torch.long), torch.ones({call(src)}))",
            raises=f"RuntimeError: Expected index {shape(index)} to be no larger than self {shape(own)} apart from dimension {dim} "
            f"and to be no larger size than src {shape(src)}",
        ),
        ("Give `index` the shape of `src` (torch broadcasts neither; `expand` the smaller one).",),
    )


@reads(
    r"Index tensor must have the same number of dimensions as (?:input|self|src) tensor",
    example="RuntimeError: Index tensor must have the same number of dimensions as input tensor",
)
def gather_dims(found: Found) -> Reading:
    return Reading(
        "`gather` or `scatter` got an index with another number of dimensions than the tensor",
        "Both work position by position, so the index needs as many dimensions as the tensor; none is added for it.",
        ("One id per row was given as a vector: it needs `unsqueeze(1)`.", "The index has an extra dimension of size 1."),
        raising(
            "scores = torch.zeros(3, 4)",
            "labels = torch.tensor([0, 3, 1])",
            "scores.gather(1, labels)" if "input" in found.match[0] else "scores.scatter_(1, labels, 1.0)",
            raises="RuntimeError: Index tensor must have the same number of dimensions as " + ("input" if "input" in found.match[0] else "self"),
        ),
        ("`scores.gather(1, labels.unsqueeze(1)).squeeze(1)`, or `scores[torch.arange(len(labels)), labels]`.",),
        running(
            "scores = torch.zeros(3, 4)",
            "labels = torch.tensor([0, 3, 1])",
            "print(scores.gather(1, labels.unsqueeze(1)).squeeze(1).shape)",
            prints="torch.Size([3])",
        ),
    )


@reads(
    r"source tensor shape must match self tensor shape, excluding the specified dimension\. Got self\.shape = \[(?P<self>[\d, ]*)\] "
    r"source\.shape = \[(?P<source>[\d, ]*)\]",
    example="RuntimeError: source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = [3, 4] "
    "source.shape = [1, 5]",
    fragments=(r"source tensor shape must match self tensor shape",),
)
def index_add_shape(found: Found) -> Reading:
    own, source = found.ints("self"), found.ints("source")
    return Reading(
        f"`index_add_` cannot add rows of {shape(source)} to a tensor of {shape(own)}",
        f"`x.index_add_(dim, ids, source)` adds whole slices, so tensor {shape(own)} and source {shape(source)} must have the same "
        "sizes everywhere but in `dim`.",
        ("`dim` is wrong.", "The source was made for another width (features, classes)."),
        raising(
            f"x = torch.zeros({call(own)})",
            f"x.index_add_(0, torch.zeros({source[0]}, dtype=torch.long), torch.ones({call(source)}))",
            raises=f"RuntimeError: source tensor shape must match self tensor shape, excluding the specified dimension. Got "
            f"self.shape = {shape(own)} source.shape = {shape(source)}",
        )
        if source
        else None,
        ("Compare `x.shape` and `source.shape` without `dim`.",),
    )


@reads(
    r"index_add_\(\): Number of indices \((?P<ids>\d+)\) should be equal to source\.size\(dim\): \((?P<source>\d+)\), for dim: (?P<dim>-?\d+)",
    example="RuntimeError: index_add_(): Number of indices (2) should be equal to source.size(dim): (1), for dim: 0",
)
def index_add_count(found: Found) -> Reading:
    ids, source, dim = found.int("ids"), found.int("source"), found.int("dim")
    lead = (3,) * max(dim, 0)
    return Reading(
        f"`index_add_` got {ids} indices for {source} slices",
        f"Each slice of `source` along dimension {dim} goes to one index: {source} slices need {source} indices, {ids} were given.",
        ("Indices or source were filtered alone, or `dim` is wrong.",),
        raising(
            f"x = torch.zeros({call((*lead, 9))})",
            f"x.index_add_({dim}, torch.zeros({ids}, dtype=torch.long), torch.ones({call((*lead, source))}))",
            raises=f"RuntimeError: index_add_(): Number of indices ({ids}) should be equal to source.size(dim): ({source}), for "
            f"dim: {dim}",
        ),
        ("Make `len(ids) == source.shape[dim]`.",),
    )


@reads(
    r"out of range: tried to access index (?P<index>-?\d+) on a tensor of (?P<elements>\d+) elements",
    example="IndexError: out of range: tried to access index 20 on a tensor of 12 elements.",
)
def take_out_of_range(found: Found) -> Reading:
    index, elements = found.int("index"), found.int("elements")
    return Reading(
        f"`take` or `put_` was asked for element {index} of {elements}",
        f"`take` counts through the whole tensor as if it were flat: {elements} elements, so 0 to {elements - 1}; asked for {index}.",
        ("A row or column number was used where a flat position is needed: position (r, c) is `r * x.shape[1] + c`.",),
        raising(
            f"x = torch.zeros({elements})",
            f"x.take(torch.tensor([{index}]))",
            raises=f"IndexError: out of range: tried to access index {index} on a tensor of {elements} elements.",
        ),
        ("Use `x[rows, cols]` for positions given by coordinates, `take_along_dim`/`gather` along one dimension.",),
    )


@reads(
    r"Class values must be (?P<what>smaller than num_classes|non-negative)",
    example="RuntimeError: Class values must be smaller than num_classes.",
)
def one_hot_range(found: Found) -> Reading:
    negative = "non" in found["what"]
    return Reading(
        "`one_hot` got a negative label" if negative else "`one_hot` got a label at or past `num_classes`",
        "`F.one_hot(labels, n)` makes rows with places 0 to n-1, so labels must lie there.",
        (
            ("-1 or -100 marks what to ignore.", "Labels are the result of a subtraction.")
            if negative
            else ("Labels count from 1.", "`num_classes` is too small: it must be the highest label + 1.")
        ),
        raising(
            f"F.one_hot(torch.tensor([0, {-1 if negative else 5}]), 3)",
            raises=f"RuntimeError: Class values must be {found['what']}",
        ),
        ("Map labels to 0 ... n-1 first; leave ignored ones out (`labels.clamp(min=0)` and mask the rows).",),
    )


@reads(
    r"(?:scatter|gather)\(\): Expected self\.dtype to be equal to src\.dtype",
    r"index_add_?\(\): self \((?P<self>\w+)\) and source \((?P<src>\w+)\) must have the same scalar type",
    r"Index put requires the source and destination dtypes match, got (?P<to>\w+) for the destination and (?P<frm>\w+) for the source",
    example="RuntimeError: Index put requires the source and destination dtypes match, got Half for the destination and Float for the "
    "source.",
)
def write_dtype(found: Found) -> Reading:
    from torchsleuth.messages import dtype

    groups = found.match.groupdict()
    to, frm = groups.get("to") or groups.get("self") or "Half", groups.get("frm") or groups.get("src") or "Float"
    scatter = "Expected self.dtype" in found.match[0]
    program = [f"x = torch.zeros(3, dtype={dtype(to)})", f"values = torch.ones(1, dtype={dtype(frm)})"]
    if groups.get("self"):
        program.append("x.index_add_(0, torch.tensor([0]), values)")
    elif scatter:
        program.append("x.scatter_(0, torch.tensor([0]), values)")
    else:
        program.append("x[torch.tensor([0])] = values")
    has = "have different dtypes" if scatter else f"are {dtype(to)} and {dtype(frm)}"
    return Reading(
        "values of one dtype were written into a tensor of another",
        f"Writing through an index tensor copies elements without converting them; the tensor and the values {has}.",
        (
            "Mixed precision: a result computed under `autocast` is half, the buffer it is written to float32, or the reverse.",
            "The values come from numpy (float64), or the buffer was made without `dtype=`.",
        ),
        raising(*program, raises="RuntimeError: " + found.match[0]),
        ("Convert the values: `x[ids] = values.to(x.dtype)`; or make the buffer with `torch.zeros_like(values)`/`dtype=values.dtype`.",),
        running(
            *program[:2], "x[torch.tensor([0])] = values.to(x.dtype)", f"print(x.dtype == {dtype(to)})", prints="True"
        ),
    )


@reads(
    r"one_hot is only applicable to index tensor of type LongTensor",
    example="RuntimeError: one_hot is only applicable to index tensor of type LongTensor.",
)
def one_hot_dtype(found: Found) -> Reading:
    return Reading(
        "`one_hot` got labels that are not int64",
        "Labels must be int64 (`torch.long`).",
        ("The labels are float or int32: from numpy, a data frame or `torch.Tensor(...)`.",),
        raising("torch.nn.functional.one_hot(torch.tensor([0.0, 1.0]), 3)", raises=found.match[0]),
        ("`labels.long()`; the result is int64 as well: `.float()` where it goes into a product or a loss.",),
        running("print(torch.nn.functional.one_hot(torch.tensor([0.0, 1.0]).long(), 3).tolist())", prints="[[1, 0, 0], [0, 1, 0]]"),
    )


@reads(
    r"index_select\(\): Index is supposed to be a vector",
    example="IndexError: index_select(): Index is supposed to be a vector",
)
def index_select_vector(found: Found) -> Reading:
    return Reading(
        "`index_select` got an index with several dimensions",
        "`index_select` takes a vector of positions along one dimension.",
        ("One choice per row was meant: that is `gather`.", "A table of ids: `x[ids]` takes any shape."),
        raising("torch.zeros(3, 4).index_select(0, torch.tensor([[1]]))", raises=found.match[0]),
        ("`x[ids]` for any shape of ids, `x.gather(dim, ids)` for one choice per row, or `ids.flatten()`.",),
        running("print(tuple(torch.zeros(3, 4)[torch.tensor([[1, 2]])].shape))", prints="(1, 2, 4)"),
    )
