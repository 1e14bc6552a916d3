"""A GPU kernel touched memory that is not its own."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.device._words import SETTLE, calls_facts, noticed_fact, watching_facts
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice


class IllegalMemoryAccess(CrashRule):
    """A kernel on the GPU read or wrote where it must not, and the GPU stopped.

    What happened
    -------------
    "an illegal memory access was encountered" or "misaligned address": a kernel used an address that belongs to no
    tensor. torch's own kernels check most indices and stop with a device-side assert instead; this one did not check.

    Why
    ---
    Usual sources: a CUDA extension or Triton kernel of your own or of a library, an index out of range in an operation
    without a check, a tensor too large for a kernel that counts with 32 bits, memory used after it was freed on another
    stream.

    Example
    -------
    Memory can be looked at through strides that lead outside; on the CPU torch refuses that. This raises
    "out of bounds for storage":

        import torch

        torch.zeros(4).as_strided((10,), (1,))

    Fix
    ---
    Find the kernel first: run again with `torchsleuth run --guard`, which waits for each kernel and checks indices
    before; then, for a kernel of your own, `compute-sanitizer python script.py`, which names the address and thread.

    Common false explanations
    -------------------------
    "The GPU is broken." Run the same program under `compute-sanitizer` before believing it: it names a kernel.

    "The line in the traceback did it." The program runs ahead of the GPU; that line only noticed.
    """

    name = "illegal-memory-access"
    messages = (r"illegal memory access", r"misaligned address", r"invalid device pointer")
    needs = ("device", "operation")

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        device = evidence.device
        if device is None or device.kind not in ("illegal access", "misaligned") or device.recovered:
            return None
        culprits = Culprits()
        if device.blocking and device.noticed is not None:
            culprits.add(device.noticed, Role.CALL, "the kernel was started here")
        facts = [*noticed_fact(device), *watching_facts(device)]
        listed = calls_facts(device)
        if listed:
            facts.append(Fact("The last operations that were watched, newest first; none was given an index out of range:", Known.OBSERVED))
            facts += listed
        what = "an address that is not a multiple of what it reads" if device.kind == "misaligned" else "memory that belongs to no tensor"
        return Diagnosis(
            self.name, f"a kernel on the GPU used {what}", Confidence.POSSIBLE, culprits.done(), tuple(facts),
            "The GPU stopped at a kernel that does not check its addresses; which one is not known here.",
            advice(SETTLE, "For a kernel of your own: `compute-sanitizer python script.py` names the kernel, the address and the thread."),
        )  # fmt: skip
