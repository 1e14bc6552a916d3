"""The same errors behind torch.compile, TorchScript, vmap, DataLoader workers, datasets, collate functions and threads."""

import sys
import warnings

import programs
import pytest

from forward_harness import Case, check, describe, run_program

CASES = [
    Case("torchscript", """\
import torch
@torch.jit.script
def combine(a, b):
    c = a * 2
    return c + b  #! operand
combine(torch.zeros(4, 5), torch.zeros(4, 6))
""", "broadcast-mismatch", ("5", "6", "TorchScript")),
    Case("vmap", """\
import torch
def one(x, w):
    return x @ w  #! operand
rows = torch.randn(7, 3)  #! create
w = torch.randn(4, 2)  #! create
torch.vmap(one, in_dims=(0, None))(rows, w)
""", "matmul-shape", ("3 against 4", "vmap")),
    Case("functional-call", """\
import torch
from torch.func import functional_call, grad, vmap
model = torch.nn.Linear(5, 6)  #! create
def loss(params, x):
    return functional_call(model, params, (x.unsqueeze(0),)).sum()  #! operand
vmap(grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), torch.randn(7, 4))
""", "matmul-shape", ("has 4 features", "takes 5"), late=False),
    Case("getitem", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __init__(self):
        self.rows = torch.arange(5)  #! create
    def __len__(self):
        return 8  #! create
    def __getitem__(self, i):
        return self.rows[i]  #! index
for batch in DataLoader(Data(), batch_size=2):
    pass
""", "index-out-of-range", ("`i` is 5", "sample 5")),
    Case("collate", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.zeros(4 if i == 5 else 3)  #! create
for batch in DataLoader(Data(), batch_size=4):  #! operand
    pass
""", "cat-shape", ("[4]", "[3]", "sample 5", "collate_fn")),
    Case("own-collate", """\
import torch
from torch.utils.data import DataLoader
def join(samples):
    return torch.stack(samples)  #! operand
data = [torch.zeros(3), torch.zeros(3), torch.zeros(2)]  #! create
for batch in DataLoader(data, batch_size=3, collate_fn=join):
    pass
""", "cat-shape", ("number 2", "sample 2")),
    Case("thread-pool", """\
import torch
from concurrent.futures import ThreadPoolExecutor
def work(n):
    a = torch.zeros(2, 3)  #! create
    b = torch.zeros(2, n)  #! create
    return a + b  #! operand
with ThreadPoolExecutor(1) as pool:
    pool.submit(work, 4).result()
""", "broadcast-mismatch", ("3 against 4",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrapped(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problems = check(case)
    assert not problems, "\n".join(problems)


@pytest.mark.skipif(sys.platform != "linux", reason="DataLoader workers are forked")
def test_dataloader_worker():
    result = run_program("""\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        rows = torch.arange(5)
        return rows[i]
for batch in DataLoader(Data(), batch_size=2, num_workers=1):
    pass
""")
    assert result.diagnosis is not None and result.diagnosis.rule == "index-out-of-range"
    assert result.lines == {8}, describe(result)
    assert "samples [4, 5]" in result.text and "size 5" in result.text, describe(result)


@pytest.mark.skipif(sys.platform != "linux", reason="DataLoader workers are forked")
def test_dataloader_worker_joining_samples_by_itself():
    result = run_program("""\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return {"x": torch.zeros(3 + (i == 3))}
for batch in DataLoader(Data(), batch_size=2, num_workers=1):
    pass
""")
    assert result.diagnosis is not None and result.diagnosis.rule == "cat-shape"
    assert result.lines == {8}
    assert "[4]" in result.text and "[3]" in result.text and "samples [2, 3]" in result.text


def test_worker_with_the_programs_own_error_gets_silence():
    result = run_program("""\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        raise RuntimeError("no such sample")
for batch in DataLoader(Data(), batch_size=2, num_workers=1):
    pass
""")
    assert result.error is not None and result.diagnosis is None, describe(result)


def test_torch_compile():
    result = run_program("""\
import torch
@torch.compile(backend="eager")
def combine(a, b):
    c = a * 2
    return c + b
combine(torch.zeros(4, 5), torch.zeros(4, 6))
""")
    assert result.diagnosis is not None and result.diagnosis.rule == "broadcast-mismatch"
    assert result.diagnosis.culprits[0].span.line == 5, describe(result)
    for words in ("`c` [4, 5]", "`b` [4, 6]", "5 against 6", "torch.compile"):
        assert words in result.text, describe(result)


def test_a_layer_under_torch_compile():
    """The text names a weight and not its layer: the live module does, and the sizes of a linear layer are compared as one's."""
    result = run_program("""\
import torch
from torch import nn
class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 8 * width), None
        self.down = nn.Linear(8 * width, width) if width < 0 else nn.Linear(8 * width, width + 1)
        self.out = nn.Linear(8 * width, width)
    def forward(self, x):
        a, b = self.up(x).chunk(2, dim=-1)
        return self.out(a * b)
torch.compile(nn.Sequential(Gate(3), Gate(3)), backend="eager")(torch.zeros(2, 3))
""")
    assert result.diagnosis is not None and result.diagnosis.rule == "matmul-shape"
    assert [culprit.span.line for culprit in result.diagnosis.culprits] == [11, 8], describe(result)
    assert "`a * b` has 12 features; `self.out` takes 24" in result.text, describe(result)


def test_samples_read_by_a_method_of_the_dataset():
    result = run_program("""\
import torch
from torch.utils.data import DataLoader, Dataset, Subset
def silence(count):
    return torch.zeros(count)
class Clips(Dataset):
    def __len__(self):
        return 6
    def _read(self, i):
        return silence(9 if i == 2 else 12)
    def __getitem__(self, i):
        wave = self._read(i)
        return {"wave": wave, "label": i}
for batch in DataLoader(Subset(Clips(), range(5)), batch_size=5):
    pass
""", log=False)
    assert result.diagnosis is not None and result.diagnosis.rule == "cat-shape"
    assert result.lines == {4, 13}, describe(result)


@pytest.mark.skipif(sys.platform != "linux", reason="DataLoader workers are forked")
def test_the_memory_a_worker_shares_is_no_tensor_of_the_list(tmp_path):
    program = tmp_path / "clips.py"
    program.write_text("""\
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for batch in DataLoader([torch.zeros(3 + (i == 4)) for i in range(5)], batch_size=5, num_workers=1):
        pass
""")
    run = programs.run_program(program)
    assert "Shapes in the list: 4 × [3], 1 × [4]." in run.words(), run.stderr


def test_a_function_of_another_module_that_made_the_labels(tmp_path, monkeypatch):
    (tmp_path / "prepare_labels.py").write_text("""\
KINDS = ["ant", "bee"]
def rows(words):
    found = []
    for word in words:
        label = KINDS.index(word) + 1
        found.append(label)
    return found
""")
    monkeypatch.syspath_prepend(tmp_path)
    result = run_program("""\
import torch
import prepare_labels as prepare
labels = torch.tensor(prepare.rows(["ant", "bee"]))
torch.nn.functional.cross_entropy(torch.zeros(2, 2), labels)
""")
    assert result.diagnosis is not None and result.diagnosis.rule == "class-out-of-range"
    places = {(culprit.span.file.rpartition("/")[2], culprit.span.line) for culprit in result.diagnosis.culprits}
    assert places == {("main.py", 4), ("prepare_labels.py", 5)}, describe(result)
