"""Messages of datasets, samplers and loaders: lengths, options that exclude one another, what workers cannot be sent."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running


@reads(
    r"Sum of input lengths does not equal the length of the input dataset",
    example="ValueError: Sum of input lengths does not equal the length of the input dataset!",
)
def split_lengths(found: Found) -> Reading:
    return Reading(
        "the parts of `random_split` are not the whole dataset",
        "`random_split` divides all of a dataset: whole numbers must add up to `len(dataset)`, fractions to 1.",
        ("Both lengths are rounded down: `int(0.8 * n)` and `int(0.2 * n)` leave one out.",),
        raising("torch.utils.data.random_split(range(11), [int(0.8 * 11), int(0.2 * 11)])", raises="ValueError: Sum of input lengths does not equal the length of the input dataset!"),
        ("`random_split(data, [0.8, 0.2])`, or the last one as the rest: `[n_train, len(data) - n_train]`.",),
        running("print([len(part) for part in torch.utils.data.random_split(range(11), [0.8, 0.2])])", prints="[9, 2]"),
    )


@reads(
    r"Size mismatch between tensors",
    example="AssertionError: Size mismatch between tensors",
)
def dataset_sizes(found: Found) -> Reading:
    return Reading(
        "the tensors of a `TensorDataset` have different first sizes",
        "`TensorDataset(x, y)` takes a sample from each at the same index, so dimension 0 must be the samples in all of them.",
        ("Inputs and labels were filtered or cut differently.", "One of them has another dimension first (features, or a batch dimension of 1).", "Windows of a series: n steps give n - length + 1 windows."),
        raising("torch.utils.data.TensorDataset(torch.zeros(10, 2), torch.zeros(9))", raises="AssertionError: Size mismatch between tensors"),
        ("Print the shapes; bring the samples to dimension 0, equally many in each.",),
    )


@reads(
    r"(?P<what>sampler|batch_sampler) option is mutually exclusive with (?P<others>[\w, ]+)",
    example="ValueError: sampler option is mutually exclusive with shuffle",
)
def loader_options(found: Found) -> Reading:
    batch = found["what"] == "batch_sampler"
    return Reading(
        f"`{found['what']}` together with {found['others'].strip()}",
        "A " + ("batch sampler decides order and batches by itself" if batch else "sampler decides the order by itself") + ", so the loader refuses another word about it.",
        ("A `DistributedSampler` or `WeightedRandomSampler` was added, and `shuffle=True` stayed." if not batch else "`batch_size`, `shuffle` or `drop_last` stayed beside it.",),
        raising(
            "data = list(range(8))",
            "sampler = torch.utils.data.RandomSampler(data)",
            "torch.utils.data.DataLoader(data, sampler=sampler, shuffle=True)" if not batch
            else "torch.utils.data.DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(sampler, 2, False), shuffle=True)",
            raises=f"{found['what']} option is mutually exclusive with",
        ),
        ("Leave the others out: `shuffle=sampler is None`. A `DistributedSampler` shuffles by itself (`sampler.set_epoch(epoch)` in each epoch).",),
    )  # fmt: skip


@reads(
    r"batch_size should be a positive integer value, but got batch_size=(?P<size>\S+)",
    example="ValueError: batch_size should be a positive integer value, but got batch_size=0",
)
def batch_size_given(found: Found) -> Reading:
    return Reading(
        f"`batch_size={found['size']}`",
        "A batch holds one sample or more, and the number is an int.",
        ("A division gave 0 or a float: `total // world_size` with few samples, `n / 4`.", "A text from a configuration or the command line."),
        raising("torch.utils.data.DataLoader([1, 2], batch_size=0)", raises="ValueError: batch_size should be a positive integer value, but got batch_size=0"),
        ("`max(1, n // k)`; `int(...)` where it is read.",),
    )


@reads(
    r"object of type '(?P<kind>\w+)' has no len\(\)",
    example="TypeError: object of type 'Stream' has no len()",
)
def no_length(found: Found) -> Reading:
    kind = found["kind"]
    none = kind == "NoneType"
    return Reading(
        f"`len` of a `{kind}`",
        f"Python asked for the length of a `{kind}`, which has none.",
        ("The value is None: a function without `return`, an option that was not set.",)
        if none
        else (
            "A dataset without `__len__`: an `IterableDataset` has none unless you write it, and `len(loader)`, progress bars and some schedules ask for it.",
            "A generator or an iterator: it is gone over once and does not know how much is left.",
            "A number where a list was meant.",
        ),
        raising(
            "class Stream(torch.utils.data.IterableDataset):",
            "    def __iter__(self):",
            "        return iter([1, 2])",
            "len(torch.utils.data.DataLoader(Stream()))",
            raises="TypeError: object of type 'Stream' has no len()",
        )
        if kind == "Stream"
        else None,
        ("Follow the value back." if none else "Give the dataset a `__len__` where the length is known; else count steps instead of epochs.",),
    )


@reads(
    r"Subclasses of Dataset should implement __getitem__",
    example="NotImplementedError: Subclasses of Dataset should implement __getitem__.",
)
def dataset_without_getitem(found: Found) -> Reading:
    return Reading(
        "the dataset has no `__getitem__`",
        "The loader asks the dataset for samples by their number, `dataset[i]`, and the class does not say how.",
        ("The method is misspelt (`__getItem__`, `__get_item__`, `getitem`), or indented so that it is inside another one.", "The class only has `__iter__`: derive it from `IterableDataset`."),
        raising(
            "class Data(torch.utils.data.Dataset):",
            "    def __len__(self):",
            "        return 3",
            "next(iter(torch.utils.data.DataLoader(Data())))",
            raises="NotImplementedError: Subclasses of Dataset should implement __getitem__",
        ),
        ("Write `def __getitem__(self, index):` at the level of the class, returning one sample.",),
    )


@reads(
    r"Can't (?:pickle|get) local object '?(?P<name>[\w.<>]+)",
    r"Can't pickle (?P<function><function .*?>): attribute lookup",
    example="AttributeError: Can't pickle local object 'make.<locals>.<lambda>'",
    fragments=(r"can't (?:pickle|get) local object",),
)
def local_object(found: Found) -> Reading:
    name = found["name"].strip("'") if found.has("name") else found["function"]
    return Reading(
        f"`{name}` cannot be sent to another process or written to a file",
        "Pickle writes functions and classes as the place where they can be imported from; what is defined inside a function, and a lambda, has none.",
        (
            "A lambda or an inner function is in the dataset, its transforms or `collate_fn`, and the loader has workers that are started by 'spawn' (Windows, macOS; "
            "'forkserver' since Python 3.14).",
            "`torch.save(model)` of a model that holds one; `mp.spawn` of an inner function.",
        ),
        raising("import io", "def make():", "    return lambda x: x", "torch.save(make(), io.BytesIO())", raises="local object 'make.<locals>.<lambda>'"),
        ("Define it at the top of a module (`functools.partial` for arguments), save `model.state_dict()`, or use `num_workers=0`.",),
    )


@reads(r"each element in list of batch should be of equal size", example="RuntimeError: each element in list of batch should be of equal size")
def lists_of_unequal_length(found: Found) -> Reading:
    return Reading(
        "the samples hold lists of different lengths",
        "The default `collate_fn` turns a batch of lists into a list of batches: first elements together, second elements together. So all lists need the same length.",
        ("A sample holds a list that is as long as its content: token ids, boxes, labels of several objects, a sentence that was split.",),
        raising("data = [[1, 2, 3], [4, 5]]", "next(iter(torch.utils.data.DataLoader(data, batch_size=2)))", raises="each element in list of batch should be of equal size"),
        ("Return tensors and pad them in a `collate_fn` of your own (`torch.nn.utils.rnn.pad_sequence`), or keep them in a list there: `collate_fn=list`.",),
        running(
            "from torch.nn.utils.rnn import pad_sequence",
            "def collate(batch):",
            "    return pad_sequence([torch.tensor(ids) for ids in batch], batch_first=True)",
            "loader = torch.utils.data.DataLoader([[1, 2, 3], [4, 5]], batch_size=2, collate_fn=collate)",
            "print(next(iter(loader)).tolist())",
            prints="[[1, 2, 3], [4, 5, 0]]",
        ),
        rule=NO_RULE,
    )


@reads(r"Trying to resize storage that is not resizable", example="RuntimeError: Trying to resize storage that is not resizable")
def storage_not_resizable(found: Found) -> Reading:
    return Reading(
        "the samples of a batch have different shapes, or a tensor's memory belongs to somebody else",
        "In a worker process the default `collate_fn` stacks the samples into shared memory that was measured by the first of them; it cannot grow for a larger batch than that. "
        "(Elsewhere: `resize_`, or `out=`, on a tensor whose memory is NumPy's, a file's or another process's.)",
        (
            "The samples differ in shape: pictures of several sizes, one with an alpha channel or without colour, sequences that are not padded.",
            "A sample is a view of a larger tensor in some samples and not in others.",
        ),
        raising("import numpy as np", "torch.from_numpy(np.zeros(2)).resize_(9)", raises="Trying to resize storage that is not resizable"),
        (
            "Run the loader with `num_workers=0`: the error then names the shapes (`stack expects each tensor to be equal size`).",
            "Resize or pad in `__getitem__` (`Resize((h, w))`, `image.convert('RGB')`), or in a `collate_fn`.",
        ),
        rule=NO_RULE,
    )
