"""Messages about positions and dimensions that are not there: `x[i]`, `select`, `dim=`."""

from __future__ import annotations

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Reading, call, count, legal, raising, reads, running, shape

SUM_BACKWARD = Falsehood(
    "It comes from the backward pass: a reduction such as `sum` shrank the dimension, and its gradient is then indexed "
    "as if it had not.",
    "The backward of `sum` expands the gradient and indexes nothing. `select` raises where code asks for the position, "
    "which is forward code unless the indexing itself stands in a custom `backward` or a hook.",
    running(
        "x = torch.randn(1, 32, 100, requires_grad=True)",
        "out = x.sum(dim=1)                       # [1, 100]",
        "out.backward(torch.ones_like(out))",
        "print(x.grad.shape, bool((x.grad == 1).all()))",
        prints="torch.Size([1, 32, 100]) True",
    ),
)


@reads(
    r"select\(\): index (?P<index>-?\d+) out of range for tensor of size ['\"\[(]*(?P<size>\d[\d, ]*)['\"\])]*"
    r"(?: at dimension (?P<dim>\d+))?",
    fragments=(r"(?<!\w)select\(\):? index", r"(?<!\w)select\(\).{0,30}out of range"),
    example="IndexError: select(): index 1 out of range for tensor of size [1, 32, 100] at dimension 0",
)
def select_out_of_range(found: Found) -> Reading:
    index, size = found.int("index"), found.ints("size")
    said = found.has("dim")
    rejecting = [d for d, n in enumerate(size) if not -n <= index < n]
    dim = found.int("dim") if said else rejecting[0] if rejecting else 0
    here = size[dim] if dim < len(size) else 0
    meaning = (
        f"Dimension {dim} of a tensor of size {shape(size)} has {count(here, 'element')}, so {legal(here)}; "
        f"the code asked for {index}."
    )
    if not said and len(rejecting) == 1:
        meaning += f" (The text names no dimension; of these sizes only dimension {dim} can refuse index {index}.)"
    elif not said and rejecting:
        meaning += f" (The text names no dimension; dimensions {', '.join(map(str, rejecting))} would refuse {index}.)"
    others = [d for d, n in enumerate(size) if d != dim and -n <= index < n]
    causes = [
        f"The index is meant for another dimension: `x[{index}]` indexes dimension {dim}"
        + (f"; `x[{', '.join([':'] * others[0] + [str(index)])}]` would index dimension {others[0]}, which has "
           f"{size[others[0]]} elements." if others else "."),
        f"Dimension {dim} is smaller than the code assumes: a batch of one, a last partial batch, an `unsqueeze(0)`, a "
        "`keepdim=True`, a bidirectional or multi-layer state (`h_n[1]`) from a model with one layer and direction.",
        f"A loop runs further than the dimension: `range(n)` with an n that is not `x.shape[{dim}]`, or an index from 1.",
    ]  # fmt: skip
    if found.during_backward:
        causes.append(
            "If the traceback shows the line inside your own `backward` or a hook, the indexing there is wrong (the gradient "
            "has the shape of the output); otherwise the line is in the forward pass and backward has no part in it."
        )
    return Reading(
        f"`select` was asked for position {index} of a dimension that has {count(here, 'element')}",
        meaning,
        tuple(causes),
        raising(
            f"x = torch.zeros({call(size)})",
            f"x.select({dim}, {index})",
            raises=f"IndexError: select(): index {index} out of range for tensor of size {shape(size)} at dimension {dim}",
        ),
        (
            "Index the dimension that is meant (`x[:, i]`, `x[..., i]`).",
            f"Take the bound from the tensor (`range(x.shape[{dim}])`), or keep the dimension from shrinking before.",
        ),
        falsehoods=(SUM_BACKWARD,),
    )


@reads(
    r"(?<!\w)index (?P<index>-?\d+) (?:is )?out of (?:bounds|range) for (?:dimension|dim|axis) (?P<dim>\d+) with size (?P<size>\d+)",
    example="IndexError: index 5 is out of bounds for dimension 1 with size 3",
    fragments=(r"is out of bounds for dimension",),
)
def index_out_of_bounds(found: Found) -> Reading:
    index, dim, size = found.int("index"), found.int("dim"), found.int("size")
    lead = (2,) * dim
    takes = ", ".join([":"] * dim + [str(index)])
    causes = [
        f"The index does not belong to this tensor: dimension {dim} has {count(size, 'element')}. Often the dimensions are in "
        "another order than the code assumes (batch first or not, channels first or last).",
        f"The tensor is shorter than expected here: a last partial batch, a truncated sequence, {size} where the code assumes "
        f"{max(index + 1, -index)} or more.",
    ]
    if index == size:
        causes.insert(0, f"Off by one: {index} equals the size. Positions, labels or ids count from 1, or a loop runs to `size + 1`.")
    elif index < 0:
        causes.insert(0, f"A negative index reaches back further than the dimension is long: -{size} is the first element.")
    if index in (-100, -1) and index < -size:
        causes.insert(0, f"{index} is a usual value for \"ignore\" or padding: it was used as an index.")
    return Reading(
        f"position {index} of a dimension that has {count(size, 'element')}",
        f"Dimension {dim} has size {size}: {legal(size)}. The code asked for {index}. `x[i]`, an index tensor, `index_put_`, "
        "`index_add_`, `gather` and `scatter` all report it so (`gather` and `scatter` as RuntimeError). With an index tensor "
        "in `x[:, ids]` torch may count the indexed dimensions only, so the number of the dimension can be lower than yours.",
        tuple(causes),
        raising(
            f"x = torch.zeros({call((*lead, size))})",
            f"ids = torch.full({(1,) * (dim + 1)}, {index})",
            f"x.gather({dim}, ids)",
            raises=f"RuntimeError: index {index} is out of bounds for dimension {dim} with size {size}",
        )
        if found.type == "RuntimeError"
        else raising(
            f"x = torch.zeros({call((*lead, size))})",
            f"x[{takes}]",
            raises=f"IndexError: index {index} is out of bounds for dimension {dim} with size {size}",
        ),
        (
            f"Check the values before indexing: `assert ids.min() >= 0 and ids.max() < x.shape[{dim}]`.",
            "Put right where they come from (labels from 0, truncated positions, the right dimension); `clamp` only hides it.",
        ),
        falsehoods=(
            Falsehood(
                "A slice that runs past the end raises the same error.",
                "Slices are cut to the size and never raise; only single positions and index tensors do.",
                running(
                    f"x = torch.zeros({call((*lead, size))})",
                    f"print(x[{', '.join([':'] * dim + [f'0:{max(index, size) + 1}'])}].shape[{dim}] == {size})",
                    prints="True",
                ),
            ),
        ),
    )


@reads(
    r"INDICES element is out of DATA bounds, id=(?P<index>-?\d+) axis_dim=(?P<size>\d+)",
    example="RuntimeError: INDICES element is out of DATA bounds, id=4 axis_dim=3",
)
def out_of_data_bounds(found: Found) -> Reading:
    index, size = found.int("index"), found.int("size")
    return Reading(
        f"`index_select` asked for position {index} of a dimension that has {count(size, 'element')}",
        f"The dimension has {count(size, 'element')}, counted from 0. `index_select` does not count negative positions from the end.",
        ("Ids that count from 1, or that belong to a larger table.", "Another dimension was meant: `index_select(x, dim, ids)` looks at `dim` alone."),
        raising(
            f"x = torch.zeros(2, {size})",
            f"x.index_select(1, torch.tensor([{index}]))",
            raises=f"INDICES element is out of DATA bounds, id={index} axis_dim={size}",
        ),
        ("Check the values before: `assert ids.min() >= 0 and ids.max() < x.shape[dim]`, and put them right where they come from.",),
    )


@reads(
    r"index out of range in self",
    r"index out of range: Tried to access index (?P<index>-?\d+) out of table with \d+ rows",
    example="IndexError: index out of range in self",
)
def index_out_of_range_in_self(found: Found) -> Reading:
    return Reading(
        "an embedding (or index_select) got an id that its table does not have",
        "`nn.Embedding(n, d)` is a table with rows 0 to n-1, and some id was negative or n or more. "
        + (f"The id was {found['index']}; the message does not name the table." if found.has("index")
           else "The message names neither the id nor the table; `ids.min()`, `ids.max()` and `embedding.num_embeddings` do.")
        + " `torchsleuth run your_script.py` names the module, the offending value and its position.",
        (
            "An id equal to or past the vocabulary size: tokens were added to the tokenizer and the model was not resized, or "
            "tokenizer and model do not belong together, or ids count from 1.",
            "A position at or past `max_position_embeddings` (512 for BERT): the sequence was not truncated. RoBERTa-style models "
            "start counting at `padding_idx + 1`, so 514 rows hold 512 positions.",
            "A token type at or past `type_vocab_size`: 1 is out of range for RoBERTa, which has one type.",
            "-100 or -1: labels, or a padding value, were fed as ids.",
        ),
        raising(
            "embedding = torch.nn.Embedding(10, 3)     # rows 0 to 9",
            "embedding(torch.tensor([1, 10]))",
            raises="IndexError: index out of range in self",
            says=OLD_WORDS if found.has("index") else "",
        ),
        (
            "Make table and ids agree: `model.resize_token_embeddings(len(tokenizer))` after adding tokens; "
            "`tokenizer(..., truncation=True, max_length=512)`; `num_embeddings = highest id + 1`.",
        ),
        running(
            "ids = torch.tensor([1, 10])",
            "embedding = torch.nn.Embedding(int(ids.max()) + 1, 3)",
            "print(embedding(ids).shape)",
            prints="torch.Size([2, 3])",
        ),
        falsehoods=(
            Falsehood(
                "The attention mask or the padding has the wrong shape.",
                "An attention mask is multiplied or added, not used as an index: one of the wrong shape is a RuntimeError about sizes. (Only `x[mask]` raises an IndexError, and that says \"mask\".)",
                raising(
                    "embedded = torch.nn.Embedding(10, 4)(torch.tensor([[1, 2, 3]]))    # [1, 3, 4]",
                    "mask = torch.ones(1, 5)",
                    "embedded * mask.unsqueeze(-1)",
                    raises="RuntimeError: The size of tensor a (3) must match the size of tensor b (5)",
                ),
            ),
        ),
    )


@reads(
    r"too many indices for tensor of dimension (?P<dims>\d+)",
    example="IndexError: too many indices for tensor of dimension 2",
    fragments=(r"too many indices for tensor",),
)
def too_many_indices(found: Found) -> Reading:
    dims = found.int("dims")
    indices = ", ".join(["0"] * (dims + 1))
    return Reading(
        f"more indices than the tensor's {count(dims, 'dimension')}",
        f"The tensor has {count(dims, 'dimension')}, so brackets after it take at most {dims} (slices and integers count one "
        f"each, `None` and `...` none); the code gave {dims + 1} or more.",
        (
            "The tensor has fewer dimensions than the code assumes: a `squeeze()`, a `sum`/`argmax` without `keepdim=True`, or "
            "indexing with an integer has removed one; or the batch dimension is missing.",
            "A boolean mask counts as many indices as it has dimensions: a mask with more dimensions than the tensor.",
        ),
        raising(
            f"x = torch.zeros({call((2,) * dims)})",
            f"x[{indices}]",
            raises=f"IndexError: too many indices for tensor of dimension {dims}",
        ),
        ("Print `x.shape` there; keep the dimension (`keepdim=True`, `x[i:i+1]`, `squeeze(dim)` instead of `squeeze()`), or "
         "index fewer.",),
    )  # fmt: skip


@reads(
    r"Dimension out of range \(expected to be in range of \[(?P<low>-?\d+), (?P<high>-?\d+)\], but got (?P<dim>-?\d+)\)",
    example="IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    fragments=(r"dimension out of range",),
)
def dimension_out_of_range(found: Found) -> Reading:
    low, high, dim = found.int("low"), found.int("high"), found.int("dim")
    dims = high + 1
    has = count(dims, "dimension") if low == -dims else "no dimension"
    sizes = (3,) * dims
    scalar_note = " (a tensor with no dimensions is treated as one with one)" if dims == 1 else ""
    return Reading(
        f"`dim={dim}` of a tensor that has {has}",
        f"The tensor has {has}{scalar_note}, numbered 0 to {high} or -1 to {low} from the end; the code named dimension {dim}. "
        "The message is about the number of dimensions, not about any size.",
        (
            f"The tensor has lost a dimension before: `squeeze()`, a reduction without `keepdim=True`, an integer index, or the "
            f"batch dimension is missing (one sample instead of a batch). It would need {count(dim + 1 if dim >= 0 else -dim, 'dimension')}.",
            "Counting from 1: the first dimension is 0.",
            "`F.cross_entropy`/`softmax(dim=1)` on one sample's scores, which have one dimension: use `dim=-1` or add a batch.",
        ),
        raising(
            f"x = torch.zeros({call(sizes)})",
            f"x.sum({dim})",
            raises=f"IndexError: Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})",
        ),
        (
            "Use `dim=-1` for the last dimension, or bring the missing one back (`unsqueeze(0)` for a batch of one, `keepdim=True`).",
        ),
        falsehoods=(
            Falsehood(
                f"A dimension must have more than {max(dim, 1)} elements for `dim={dim}`.",
                "Sizes play no part: any tensor with enough dimensions will do, even an empty one.",
                running(f"print(torch.zeros({call((0,) * (dim + 1 if dim >= 0 else -dim))}).sum({dim}).numel() >= 0)", prints="True"),
            ),
        ),
    )


@reads(
    r"invalid index of a 0-dim tensor",
    r"iteration over a 0-d tensor",
    r"len\(\) of a 0-d tensor",
    r"slice\(\) cannot be applied to a 0-dim tensor",
    r"chunk expects at least a 1-dimensional tensor",
    example="IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
    "0-dim tensor to a number",
    fragments=(r"0-d(?:im)? tensor",),
)
def scalar_indexed(found: Found) -> Reading:
    return Reading(
        "a tensor without dimensions was indexed or iterated",
        "The tensor holds one number and has shape `[]`: there is nothing to index, iterate or measure with `len`.",
        (
            "A loss or another full reduction was indexed: `loss.data[0]` was right before PyTorch 0.4; today it is `loss.item()`.",
            "A `squeeze()` also removed the batch dimension of a batch of one.",
            "A loop over a tensor gave its elements, and the code indexes those once more.",
        ),
        raising(
            "loss = torch.tensor(3.0)",
            "loss[:1]" if "slice" in found.match[0] else "loss.chunk(2)" if "chunk" in found.match[0] else "loss[0]" if "index" in found.match[0] else "len(loss)" if "len" in found.match[0] else "list(loss)",
            raises=found.match[0],
        ),
        ("`loss.item()` for the number; `squeeze(dim)` to remove only the dimension meant; `reshape(1)` to get one back.",),
        running("loss = torch.tensor(3.0)", "print(loss.item(), loss.reshape(1)[0].item())", prints="3.0 3.0"),
    )


@reads(
    r"only integers, slices \(`:`\), ellipsis \(`\.\.\.`\), None and long or byte Variables are valid indices \(got (?P<kind>\w+)\)",
    example="IndexError: only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got float)",
    fragments=(r"are valid indices",),
)
def index_kind(found: Found) -> Reading:
    kind = found["kind"]
    value = {"float": "1.5", "str": "'a'", "dict": "{}"}.get(kind, "1.5")
    return Reading(
        f"a tensor was indexed with a {kind}",
        f"Between the brackets stands a Python {kind}; positions are whole numbers.",
        ("`/` gives a float even where it divides evenly: `x[n / 2]`.", "A number that was read from text, a file or numpy."),
        raising("x = torch.zeros(3, 4)", f"x[{value}]", raises=f"are valid indices (got {kind})") if kind == "float" else None,
        ("Use `//` for positions, or `int(...)` where the value is meant to be whole.",),
    )


@reads(
    r"start \((?P<start>\d+)\) \+ length \((?P<length>\d+)\) exceeds dimension size \((?P<size>\d+)\)",
    example="RuntimeError: start (2) + length (5) exceeds dimension size (4).",
)
def narrow_too_long(found: Found) -> Reading:
    start, length, size = found.int("start"), found.int("length"), found.int("size")
    return Reading(
        f"`narrow` reaches past the end of a dimension of size {size}",
        f"From position {start}, {length} elements end at {start + length}; the dimension has {size}.",
        ("The window is longer than what is left: a last partial batch or chunk, or a sequence shorter than the window.",),
        raising(
            f"x = torch.zeros({size})",
            f"x.narrow(0, {start}, {length})",
            raises=f"RuntimeError: start ({start}) + length ({length}) exceeds dimension size ({size}).",
        ),
        (f"Cut the length (`min(length, x.shape[dim] - start)`), or slice: `x[{start}:{start + length}]` is cut to the size.",),
        running(f"x = torch.zeros({size})", f"print(len(x[{start}:{start + length}]))", prints=str(max(0, size - start))),
    )


@reads(
    r"selected index k out of range",
    r"selected number k out of range for dimension (?P<dim>\d+)",
    example="RuntimeError: selected index k out of range",
)
def k_out_of_range(found: Found) -> Reading:
    return Reading(
        "`topk` or `kthvalue` wants more elements than there are",
        "k is larger than the size of the dimension searched (the last one unless `dim` is given).",
        ("Fewer classes, candidates or elements than k: top-5 of 3 classes, a small last batch.", "The wrong `dim`."),
        raising("torch.zeros(3).kthvalue(5)" if found.has("dim") else "torch.zeros(3).topk(5)", raises=found.match[0].split(" for ")[0]),
        ("`k = min(k, x.shape[dim])`, and check `dim`.",),
        running("x = torch.zeros(3)", "print(len(x.topk(min(5, x.shape[-1])).values))", prints="3"),
    )
