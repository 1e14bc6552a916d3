"""The same errors behind torch.compile, TorchScript, vmap, DataLoader workers, datasets, collate functions and threads."""

import sys
import warnings

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
rows = torch.randn(7, 3)
w = torch.randn(4, 2)  #! create
torch.vmap(one, in_dims=(0, None))(rows, w)
""", "matmul-shape", ("3 against 4", "vmap")),
    Case("getitem", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __init__(self):
        self.rows = torch.arange(5)  #! create
    def __len__(self):
        return 8
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
