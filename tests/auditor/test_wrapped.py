"""Models in DataParallel and DistributedDataParallel: in one process, and in two that must not wait for one another."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import torchsleuth
from torchsleuth.auditor.program.live import StepWatch

IDS = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [2, 9, 4, 0], [5, 0, 0, 0]])
MASK = IDS != 0
Y = torch.tensor([0, 1, 2, 0])


class Net(nn.Module):
    def __init__(self, masked=True):
        super().__init__()
        self.emb, self.norm, self.drop, self.out = nn.Embedding(10, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 3)
        self.masked = masked

    def forward(self, ids, mask):
        h = self.emb(ids)
        pooled = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True) if self.masked else h.mean(1)
        return self.out(self.drop(self.norm(pooled)))


@pytest.fixture
def group(tmp_path):
    if not dist.is_available():
        pytest.skip("torch was built without distributed")
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(kind, model):
    return nn.DataParallel(model) if kind == "DataParallel" else nn.parallel.DistributedDataParallel(model)


@pytest.mark.parametrize("kind", ["DataParallel", "DistributedDataParallel"])
def test_wrapped_model_is_audited(kind, group):
    torch.manual_seed(0)
    clean = torchsleuth.audit(wrapped(kind, Net()), {"ids": IDS, "mask": MASK}, loss_fn=lambda out: F.cross_entropy(out, Y))
    assert not clean.diagnoses and any(kind in note for note in clean.notes)
    (found,) = torchsleuth.audit(wrapped(kind, Net(masked=False)), (IDS, MASK)).diagnoses
    assert found.rule == "padding-leak" and "h.mean(1)" in found.culprits[0].source
    assert dist.is_initialized()


def trained(kind, *, clear=True, undo=True, switch=True):
    torch.manual_seed(0)
    watch = StepWatch()
    watch.start()
    model = wrapped(kind, Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        if undo:
            model.train()
        for _ in range(3):
            loss = F.cross_entropy(model(IDS, mask=MASK), Y)
            if clear:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if switch:
            model.eval()
        with torch.no_grad():
            (model(IDS, mask=MASK).argmax(1) == Y).sum().item()
    return watch.finish()


@pytest.mark.parametrize("kind", ["DataParallel", "DistributedDataParallel"])
def test_wrapped_training_is_watched(kind, group):
    assert [d.rule for d in trained(kind).diagnoses] == []
    assert [d.rule for d in trained(kind, clear=False).diagnoses] == ["gradients-kept"]
    (turned,) = trained(kind, undo=False).diagnoses
    assert turned.rule == "eval-mode-training" and "step 4" in turned.title and turned.culprits[0].source == "model.eval()"
    assert [d.rule for d in trained(kind, switch=False).diagnoses] == ["train-mode-evaluation"]


class Gathering(nn.Module):
    """Compares its samples with those of all ranks."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(5, 4)

    def forward(self, x):
        z = F.normalize(self.line(x), dim=-1)
        everyone = z
        if dist.is_initialized():
            parts = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, z.detach())
            parts[dist.get_rank()] = z
            everyone = torch.cat(parts)
        return z @ everyone.T


class Holding(nn.Module):
    """Keeps a process group of its own."""

    def __init__(self):
        super().__init__()
        self.line, self.group = nn.Linear(5, 8), dist.new_group([0, 1])

    def forward(self, x):
        h = self.line(x)
        mean = h.detach().mean(0)
        dist.all_reduce(mean, group=self.group)
        return h - mean / 2


@pytest.mark.skipif(not hasattr(os, "fork") or torch.cuda.is_available() or sys.platform == "darwin", reason="needs fork")
@pytest.mark.parametrize("kind", [Gathering, Holding])
def test_one_rank_experiments_alone(kind, tmp_path):
    """Rank 0 audits while rank 1 does something else: a collective in the model would wait for ever."""
    children = [os.fork() or os._exit(_rank(rank, str(tmp_path / "store"), kind)) for rank in range(2)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]


def _rank(rank: int, store: str, kind: type[nn.Module] = Gathering) -> int:
    import datetime

    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2, timeout=datetime.timedelta(seconds=30))
        torch.manual_seed(rank)
        watch = StepWatch()
        watch.start()
        model = nn.parallel.DistributedDataParallel(kind())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(torch.randn(4, 5)), torch.arange(4) + 4 * rank)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parts = watch.finish() if rank == 0 else watch.abandon()
        dist.barrier()
        dist.destroy_process_group()
        if parts is None:
            return 0
        said = any("exchanges data with other processes (`allreduce`)" in note for note in parts.notes)
        return 1 if parts.diagnoses or said != (kind is Holding) else 0
    except BaseException:
        return 2
