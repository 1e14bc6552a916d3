"""cuBLAS or cuDNN failed without saying why."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.device._words import SETTLE, calls_facts
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import failed, operand_facts, setting_facts


class CudaLibraryError(CrashRule):
    """cuBLAS or cuDNN refused a call, and its status names no cause.

    What happened
    -------------
    Matrix products run in cuBLAS, convolutions and recurrent layers in cuDNN. One of them returned a status such as
    CUBLAS_STATUS_EXECUTION_FAILED. torch passes the status on; it is not the cause.

    Why
    ---
    Three causes are common: an earlier kernel had failed (an index out of range), and this is the first call to notice;
    the memory was full, and the library could not get its workspace; the operands do not fit what the library
    supports (dtype, layout, size). The report says which of them it could rule out.

    Example
    -------
    On the CPU the operands are checked by torch itself. This raises "mat1 and mat2 shapes cannot be multiplied":

        import torch

        torch.nn.Linear(8, 4)(torch.ones(2, 6))

    Fix
    ---
    If the GPU no longer answers, the cause is an earlier kernel: run again with `torchsleuth run --guard`. If memory was
    short, free some. Otherwise compare the operands' shapes and dtypes.

    Common false explanations
    -------------------------
    "The CUDA version does not match." That shows when torch is imported or first uses the GPU, not in the middle of a run.
    """

    name = "cuda-library-error"
    messages = (r"CUBLAS_STATUS_\w+", r"CUDNN_STATUS_\w+", r"cuDNN error")
    needs = ("device", "device_state", "operation")
    priority = 5

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        device, state, operation = evidence.device, evidence.device_state, failed(evidence)
        if device is None or device.recovered:
            return None
        found = re.search(r"CU(?:BLAS|DNN)_STATUS_\w+", evidence.exception.message)
        status = found[0] if found else "an error"
        library = "cuDNN" if device.kind == "cudnn" else "cuBLAS"
        culprits = Culprits()
        facts: list[Fact] = []
        fixes: list[str] = []
        if operation is not None:
            culprits.lead(operation, Role.CALL, "the call that failed")
            facts += operand_facts(operation, 6) + setting_facts(operation)
        elif device.noticed is not None:
            culprits.add(device.noticed, Role.CALL, "the call that failed")
        if state is not None and not state.answers:
            facts.insert(0, Fact("Asked after the error, the GPU no longer answers: an earlier kernel had failed, and this call only noticed.", Known.OBSERVED))
            why = "The GPU had stopped before this call. Its operands need not have anything to do with it."
            fixes.append(SETTLE)
            facts += calls_facts(device)
        elif state is not None and state.free < 256 << 20:
            facts.insert(0, Fact(f"Asked after the error, the GPU has {state.free >> 20} MiB of {state.total >> 20} MiB free.", Known.OBSERVED))
            why = f"{library} needs memory of its own besides the tensors, and there was hardly any."
            fixes.append("Smaller batches, or less kept on the GPU.")
        else:
            if state is not None:
                facts.insert(0, Fact(
                    f"Asked after the error, the GPU still answers and has {state.free >> 20} MiB free: neither an earlier kernel nor full memory is the cause.",
                    Known.OBSERVED))  # fmt: skip
            why = f"{library} gave the status {status} for this call; shapes, dtypes and layouts of its operands are what is left to look at."
            fixes.append("Compare the operands with what the operation takes; try the same call on the CPU, where torch checks them first.")
        return Diagnosis(self.name, f"{library} failed with {status}", Confidence.POSSIBLE, culprits.done(), tuple(facts), why, advice(*fixes))
