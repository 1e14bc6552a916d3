"""A forked process, a DataLoader's worker mostly, that asks for the GPU."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.model import Confidence, Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import failed, seen


class CudaInFork(CrashRule):
    """A process that was forked after the GPU had been used asks for the GPU itself.

    What happened
    -------------
    The program used the GPU, and then another process was forked from it: a worker of a DataLoader, or a
    `multiprocessing.Process`. CUDA cannot be used in a copy of a process that has used it, and torch refuses.

    Why
    ---
    Nearly always a dataset or `collate_fn` moves each sample to the GPU (`.cuda()`, `.to(device)`), or keeps its data there, and the
    DataLoader has `num_workers` greater than 0. Workers are there to prepare samples in the computer's memory.

    Example
    -------
    The samples stay on the CPU, and each batch is moved where it is used. This prints torch.Size([4, 3]):

        import torch
        from torch.utils.data import DataLoader, TensorDataset

        device = "cuda" if torch.cuda.is_available() else "cpu"
        for (x,) in DataLoader(TensorDataset(torch.zeros(4, 3)), batch_size=4, pin_memory=device == "cuda"):
            print(x.to(device).shape)

    Fix
    ---
    Return CPU tensors from the dataset, and move the batch in the training loop; `pin_memory=True` with
    `.to(device, non_blocking=True)` makes that fast. Where a worker really has to use the GPU:
    `multiprocessing_context="spawn"`.

    Common false explanations
    -------------------------
    "The driver is broken, or `torch.cuda.init()` has to be called in the worker": the process is a fork, and no call changes that.
    """

    name = "cuda-in-fork"
    messages = (r"Cannot re-initialize CUDA in forked subprocess",)
    needs = ("operation",)
    priority = 30

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        worker = bool(operation.sample) or operation.wrapper == "a DataLoader worker"  # samples are fetched there
        culprits = Culprits()
        culprits.lead(operation, Role.CALL, "the GPU is asked for here, in a forked process")
        where = "a DataLoader worker" if worker else "a forked process"
        facts = [seen(operation.sample)] if operation.sample else []
        titles = [
            "Leave the sample in the computer's memory here, and move the batch in the training loop: `x = x.to(device, non_blocking=True)` (with `pin_memory=True`).",
            "If a worker has to use the GPU: `DataLoader(..., multiprocessing_context=\"spawn\")`." if worker else 'Start processes with `torch.multiprocessing.get_context("spawn")`.',
        ]
        return Diagnosis(
            self.name, f"`{operation.place.source}` uses the GPU in {where}", Confidence.CERTAIN, culprits.done(), tuple(facts),
            "The worker is a fork of the main process, which has used the GPU: a copy with all that it had set up, and CUDA does not work in such a copy. With `num_workers=0` there is no fork, and it would run."
            if worker else "A fork is a copy of the process, which has used the GPU, with all that it had set up, and CUDA does not work in such a copy.", advice(*(titles if worker else titles[1:])),
        )  # fmt: skip
