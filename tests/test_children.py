"""What fails in a forked child is diagnosed there and told by the parent; what the program handles stays silent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import Run, run_program

from torchsleuth.children import Children
from torchsleuth.model import Confidence, Diagnosis

POOLS = {
    "multiprocessing": ("import torch.multiprocessing as mp", "with mp.Pool(2) as pool:\n        print(pool.map(step, [1, 2]))"),
    "concurrent.futures": (
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor",
        'with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:\n        print(list(pool.map(step, [1, 2])))',
    ),
    "torch": ("import torch.multiprocessing as mp", 'mp.start_processes(step, nprocs=2, start_method="fork")'),
}


@pytest.fixture
def ran(tmp_path):
    def run(text: str) -> Run:
        script = tmp_path / "main.py"
        script.write_text(text)
        return run_program(script)

    return run


@pytest.mark.parametrize("kind", POOLS)
def test_a_backward_that_fails_in_a_pool(kind: str, ran) -> None:
    imports, use = POOLS[kind]
    run = ran(f"""\
import torch
{imports}

def step(k):
    w = torch.randn(3, requires_grad=True)
    y = w.exp()
    y += 1
    y.sum().backward()

if __name__ == "__main__":
    {use}
""")
    (diagnosis,) = run.diagnoses
    assert run.report["outcome"] == "crash" and diagnosis["rule"] == "inplace-saved-tensor" and diagnosis["confidence"] == "certain"
    assert [culprit["line"] - 4 for culprit in diagnosis["culprits"]] == [imports.count("\n") + k for k in (3, 2)], diagnosis["culprits"]
    assert "in a child process" in run.words()


def test_samples_that_a_loaders_worker_cannot_join(ran) -> None:
    run = ran("""\
import torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    lengths = [5, 5, 7, 5]
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.arange(self.lengths[i]), i % 2

if __name__ == "__main__":
    for ids, labels in DataLoader(Texts(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
        print(ids.shape)
""")
    (diagnosis,) = run.diagnoses
    words = run.words()
    assert diagnosis["rule"] == "cat-shape" and "[7]" in words and "[5]" in words and "samples [2, 3]" in words
    assert "different numbers of dimensions" not in words and "DataLoader worker 1" in words
    assert {culprit["line"] for culprit in diagnosis["culprits"]} == {9, 12}, diagnosis["culprits"]


def test_a_process_that_dies_is_told_of_once_and_the_program_goes_on(ran) -> None:
    run = ran("""\
import torch
import torch.multiprocessing as mp

def train(rank):
    model = torch.nn.Linear(4, 2)
    model(torch.randn(8, 5)).sum().backward()

if __name__ == "__main__":
    context = mp.get_context("fork")
    processes = [context.Process(target=train, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes])
""")
    assert run.status == 0 and run.stdout.endswith("[1, 1]\n")
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "matmul-shape" and diagnosis["culprits"][0]["line"] == 6


@pytest.mark.parametrize(
    "body",
    [
        "return torch.zeros(3)[k].item()",  # torch's error, which the program expects
        "import traceback\n    try:\n        torch.zeros(3)[k]\n    except IndexError:\n        return traceback.format_exc()[:0]",
        "raise RuntimeError('mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)')",  # its own
    ],
)
def test_what_the_program_handles_is_left_alone(body: str, ran) -> None:
    run = ran(f"""\
import torch
import torch.multiprocessing as mp

def look(k):
    {body}

if __name__ == "__main__":
    with mp.get_context("fork").Pool(1) as pool:
        try:
            pool.apply(look, (5,))
        except (IndexError, RuntimeError) as error:
            print("skipped")
""")
    assert run.status == 0 and run.diagnoses == [], run.words()


def test_what_children_left_is_cleared_away(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = Diagnosis("rule", "title", Confidence.CERTAIN, (), (), "why", ())
    children = Children(lambda: None, lambda error, outer: (said,))
    children._tell(IndexError("index 5"), dies=True)
    ((exception, (diagnosis,)),) = children.died()
    assert (exception.type, diagnosis.title) == ("IndexError", "title")
    assert children.told(IndexError("index 5")) and not children.told(IndexError("index 6"))
    children.dismiss()
    assert os.listdir(tmp_path) == []


def test_a_process_that_was_started_anew_is_read_by_its_text(ran) -> None:
    run = ran("""\
import torch
import torch.multiprocessing as mp

def work(rank):
    w = torch.randn(3, 4, requires_grad=True)
    x = torch.randn(2, 5)
    (x @ w).sum().backward()

if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
""")
    (diagnosis,) = run.diagnoses
    (culprit,) = diagnosis["culprits"]
    assert diagnosis["rule"] == "matmul-shape" and (culprit["line"], culprit["column"], culprit["end_column"]) == (7, 6, 11)
    assert "2x5 and 3x4" in run.words() and "another process" in run.words() and "torchsleuth.watch()" in run.words()


def test_children_forked_after_the_watching_are_left_alone(ran) -> None:
    run = ran("""\
import traceback
import torch
import torchsleuth
import torch.multiprocessing as mp

def names(_):
    return traceback.print_exc.__name__, traceback.format_exc.__name__

if __name__ == "__main__":
    import torchsleuth.children as children
    children._attending.clear()  # those of `torchsleuth run` itself
    with torchsleuth.watch():
        with mp.get_context("fork").Pool(1) as pool:
            print(pool.map(names, [0])[0])
    with mp.get_context("fork").Pool(1) as pool:
        print(pool.map(names, [0])[0])
""")
    assert run.stdout.splitlines() == ["('telling', 'telling')", "('print_exc', 'format_exc')"], run.stderr


PARTNERS = """
import os, sys
import torch
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
x = torch.ones(1)
dist.all_reduce(x)
if rank == 1:
    os._exit(3)
dist.all_reduce(x)
"""


def test_a_process_whose_partner_has_gone_accuses_no_line_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARTNERS)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "torchsleuth", "run", "train.py", str(rank), str(tmp_path / "store")],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    (_, left), _ = [process.communicate(timeout=120) for process in begun]
    assert begun[1].returncode == 3
    assert begun[0].returncode == 1 and "all_reduce" in left, left
    assert "━━ torchsleuth" not in left, left


def test_a_worker_that_asks_for_the_gpu(ran) -> None:
    """Pretended: torch is told that this process is a fork of one that has used the GPU."""
    run = ran("""\
import torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, k):
        return torch.zeros(3).cuda()
if __name__ == "__main__":
    torch.cuda._is_in_bad_fork = lambda: True
    for x in DataLoader(Samples(), batch_size=4, num_workers=1):
        print(x)
""")
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "cuda-in-fork" and [culprit["line"] for culprit in diagnosis["culprits"]] == [7]
    assert "in a DataLoader worker" in run.words() and "in the training loop" in run.words()
