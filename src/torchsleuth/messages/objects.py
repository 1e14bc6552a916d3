"""Messages of Python about what a layer, a loader or a dataset handed over: a tuple for a tensor, nothing at all, no `forward`."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads, running

TENSORS_OWN = "to|cuda|cpu|size|shape|dim|ndim|view|reshape|flatten|permute|transpose|unsqueeze|squeeze|detach|float|long|half|mean|backward|numpy|item|contiguous|device|dtype"


@reads(
    rf"'(?P<kind>tuple|list|dict)' object has no attribute '(?P<name>{TENSORS_OWN})'",
    example="AttributeError: 'tuple' object has no attribute 'size'",
)
def container_for_tensor(found: Found) -> Reading:
    kind, name = found["kind"], found["name"]
    values = {"tuple": "(torch.zeros(2), torch.zeros(3))", "list": "[torch.zeros(2), torch.zeros(3)]", "dict": "{'x': torch.zeros(2)}"}[kind]
    each = {"tuple": "out, state = rnn(x)", "list": "images, labels = batch", "dict": "batch['input_ids']"}[kind]
    return Reading(
        f"a {kind} where a tensor was expected",
        f"`.{name}` belongs to tensors. What it was asked of is a {kind}; the tensors are inside of it.",
        {
            "tuple": (
                "A recurrent layer returns two things, the output and the state: `out, state = rnn(x)`. In an `nn.Sequential` the next layer gets both.",
                "A model of transformers was asked for a tuple (`return_dict=False`), an attention layer returns `(output, weights)`, or a comma at the "
                "end of a line made a tuple of one.",
            ),
            "list": (
                "A DataLoader hands over a list of what the samples hold: `images, labels = batch`.",
                "A list of tensors that were collected in a loop: `torch.stack(items)` or `torch.cat(items)` makes one of them.",
            ),
            "dict": ("A batch or an output with names: take the entry, or move each of them: `{key: value.to(device) for key, value in batch.items()}`.",),
        }[kind],
        raising(f"out = {values}", f"out.{name}", raises=f"AttributeError: '{kind}' object has no attribute '{name}'"),
        (f"Take the tensor out first: `{each}`.",),
    )


@reads(
    r"'torch\.Size' object is not callable",
    example="TypeError: 'torch.Size' object is not callable",
)
def shape_called(found: Found) -> Reading:
    return Reading(
        "`x.shape` is not a function",
        "`x.shape` is the sizes themselves, to be indexed; `x.size()` is the method, and `x.size(0)` one of the sizes.",
        ("`x.shape(0)` was written for `x.shape[0]` or `x.size(0)`.",),
        raising("torch.zeros(2, 3).shape(0)", raises="TypeError: 'torch.Size' object is not callable"),
        ("`x.shape[0]`, or `x.size(0)`.",),
        running("x = torch.zeros(2, 3)", "print(x.shape[0], x.size(0))", prints="2 2"),
    )


@reads(
    r"num_samples should be a positive integer value, but got num_samples=(?P<count>-?\d+)",
    example="ValueError: num_samples should be a positive integer value, but got num_samples=0",
)
def empty_dataset(found: Found) -> Reading:
    return Reading(
        "the dataset is empty",
        "`DataLoader(dataset, shuffle=True)` draws from `len(dataset)` samples, and there are none.",
        (
            "No file was found: a wrong folder or pattern (`glob` of a path that does not exist gives an empty list), another ending (`.jpeg`, `.JPG`).",
            "A filter or a split left nothing.",
            "`__len__` of the dataset returns another number than that of its samples.",
        ),
        raising("torch.utils.data.DataLoader([], shuffle=True)", raises="num_samples=0") if found.int("count") == 0 else None,
        ("Print `len(dataset)` and the path where it is made; raise there if nothing was found.",),
    )


@reads(
    r"Module \[(?P<kind>\w+)\] is missing the required \"forward\" function",
    example='NotImplementedError: Module [ModuleList] is missing the required "forward" function',
)
def no_forward(found: Found) -> Reading:
    kind = found["kind"]
    listed = kind in ("ModuleList", "ModuleDict")
    return Reading(
        f"`{kind}` was called and has no `forward`",
        "Calling a module runs its `forward`." + (f" An `nn.{kind}` only holds layers; it does not know in which order to run them." if listed else ""),
        ("A list of layers was called as if it were a chain.",) if listed else
        ("`forward` is misspelt (`foward`), or indented into `__init__`, so that it is a function inside of that.",
         "Only `__call__` or a method of another name was written."),
        raising(f"layers = nn.{kind}()", "layers(torch.zeros(2))", raises=f'Module [{kind}] is missing the required "forward" function') if listed else
        raising(f"class {kind}(nn.Module):", "    def foward(self, x):", "        return x", "", f"{kind}()(torch.zeros(2))",
                raises=f'Module [{kind}] is missing the required "forward" function'),
        ("Use `nn.Sequential`, or loop: `for layer in self.layers: x = layer(x)`." if listed else "Name it `forward`, with the indentation of `__init__`.",),
    )  # fmt: skip


@reads(
    r"expected Tensor as element (?P<place>\d+) in argument (?P<argument>\d+), but got (?P<kind>\w+)",
    example="TypeError: expected Tensor as element 0 in argument 0, but got list",
)
def not_all_tensors(found: Found) -> Reading:
    place, kind = found.int("place"), found["kind"]
    made = {"list": "[1.0]", "tuple": "(1.0,)", "int": "1", "float": "1.0", "str": "'a'", "NoneType": "None", "dict": "{}"}.get(kind, "")
    return Reading(
        f"a list that should hold tensors holds a {kind} in place {place}",
        f"`cat`, `stack` and the like take a list of tensors; entry {place} (counted from 0) is a {kind}. Shapes have no part in it.",
        ("Lists were collected in a list (`parts.append([x])`), or a batch is a list of samples that were not collated.", "Numbers or arrays were collected: `.item()`, numpy."),
        raising(f"torch.stack([torch.zeros(1)] * {place} + [{made}])", raises=found.match[0]) if made and place < 1000 and found.int("argument") == 0 else None,
        ("Collect tensors: `parts.append(x)`; numbers and arrays by `torch.tensor(values)` or `torch.as_tensor`.",),
    )


@reads(
    r"(?P<what>linalg\.(?:inv|solve|cholesky|lstsq|inv_ex)): (?:The diagonal element (?P<at>\d+) is zero|The solver failed because the input matrix is singular"
    r"|The factorization could not be completed because the input is not positive-definite)",
    r"(?P<old>cholesky|inverse|lu_solve)_cpu: (?:For batch \d+: )?U\(\d+,\d+\) is zero, singular U",
    example="torch._C._LinAlgError: linalg.inv: The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular.",
)
def singular_matrix(found: Found) -> Reading:
    cholesky = "cholesky" in (found.match.groupdict().get("what") or found.match.groupdict().get("old") or "")
    return Reading(
        "the matrix is not positive-definite" if cholesky else "the matrix has no inverse",
        "A Cholesky factor exists only for symmetric matrices whose eigenvalues are all above 0." if cholesky else
        "Some rows (or columns) are combinations of others, so the equations have no single solution.",
        (
            "A covariance or kernel matrix of fewer samples than dimensions, or with two equal samples: its smallest eigenvalue is 0, or slightly below "
            "after rounding.",
            "Columns that say the same twice: a feature and its copy, dummy columns that sum to the constant one.",
            "NaN or infinite values in the matrix, from an earlier step.",
        ),
        raising("torch.linalg.cholesky(torch.zeros(2, 2))", raises="linalg.cholesky: The factorization could not be completed",
                says="A matrix of this kind:") if cholesky else
        raising("torch.linalg.inv(torch.ones(2, 2))", raises="linalg.inv: The diagonal element 2 is zero"),
        ("Add a little to the diagonal: `A + 1e-6 * torch.eye(n)`, or compute in float64; for equations `torch.linalg.lstsq` or `torch.linalg.pinv`. "
         "Look first whether the matrix holds NaN.",),
        running("A = torch.ones(2, 2) + 1e-3 * torch.eye(2)", "print(torch.linalg.cholesky(A).shape)", prints="torch.Size([2, 2])"),
    )  # fmt: skip
