"""The GPU's memory is full."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_device import FullMemory, Holder
from torchsleuth.evidence_forward import shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import plural, users


class CudaOutOfMemory(CrashRule):
    """The GPU's memory ran out.

    What happened
    -------------
    An operation asked for memory that the GPU did not have. The line in the traceback is the one that asked last; most
    of the memory was taken earlier. The report says by whom: what the graph keeps for backward, line by line, then
    parameters, gradients, the optimizer's state and variables.

    Why
    ---
    Training keeps the inputs of most operations until backward has used them. That grows with batch size, length and
    depth; attention scores grow with the square of the length. A loss added up over steps with its graph
    (`total += loss`) keeps the graphs of all steps.

    Example
    -------
    A sum of losses reaches back into every step. This prints the number of losses whose graphs are still alive, 3:

        import torch

        w = torch.ones(2, requires_grad=True)
        total = 0
        for step in range(3):
            total = total + ((w * step) ** 2).sum()
        alive, nodes, seen = 0, [total.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is not None and node not in seen:
                seen.add(node)
                alive += node.name() == "SumBackward0"
                nodes += [next_ for next_, _ in node.next_functions]
        print(alive)

    Fix
    ---
    Where graphs of several steps are alive: `total += loss.item()`, or `detach()` what is kept. Otherwise smaller
    batches, `torch.utils.checkpoint` around the lines that keep most, `torch.no_grad()` for evaluation, bfloat16.

    Common false explanations
    -------------------------
    "`torch.cuda.empty_cache()` helps." It gives back memory that torch has reserved and not in use, which torch would
    use itself before it gives up; what tensors hold stays held.

    "The line in the traceback needs the memory." It asked last; look at who holds it.
    """

    name = "cuda-out-of-memory"
    messages = (r"OutOfMemoryError", r"CUDA out of memory")
    needs = ("memory",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        memory = evidence.memory
        if memory is None:
            return None
        culprits = Culprits()
        facts: list[Fact] = []
        fixes: list[str] = []
        if memory.steps and memory.steps_at is not None:
            who = f"`{memory.keeper}` keeps" if memory.keeper else "something keeps"
            kept = f"{memory.steps} results with their graphs" if memory.gathered else f"the graphs of {memory.steps} steps"
            if memory.keeper_made is not None and memory.keeper_made.span != memory.steps_at.span:
                culprits.add(memory.keeper_made, Role.CREATE, f"{memory.keeper} keeps {kept}")
            culprits.add(memory.steps_at, Role.CREATE, f"the graphs of {memory.steps} of these are still alive")
            what = "no backward has freed what these keep" if memory.gathered else "so many results of this loss are still part of a live graph"
            facts.append(Fact(f"{who} {kept} alive: {what}.", Known.OBSERVED))
            name = memory.keeper or "the sum"
            fixes.append(f"Keep numbers instead of graphs: `.item()` (or `.detach()`) on what goes into `{name}`, unless you call backward on it.")
        for holder in memory.saved[:3]:
            if holder.place is not None and holder.size >= memory.allocated // 10:
                culprits.add(holder.place, Role.CREATE, f"keeps {_bytes(holder.size)} for backward")
        if memory.place is not None:
            asked = f"asked for {_bytes(memory.wanted)} more" if memory.wanted else "asked for more"
            culprits.add(memory.place, Role.CALL, f"{asked}, and there was no room")
        facts += _table(memory)
        if memory.reserved > memory.allocated // 4 and memory.reserved > memory.wanted > 0:
            facts.append(Fact(f"{_bytes(memory.reserved)} are reserved by torch and not in use, in pieces too small for this request.", Known.OBSERVED))
            fixes.append("Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: the free memory is in pieces.")
        if memory.saved and not memory.steps:
            fixes.append("Smaller batches, or `torch.utils.checkpoint` around the lines that keep most; for evaluation `torch.no_grad()`.")
        top = memory.saved[0] if memory.saved else None
        title = "the GPU's memory is full"
        if top is not None and top.place is not None and top.size >= memory.allocated // 4:
            where = users(top.place) or top.place
            title += f": line {where.span.line} keeps {_bytes(top.size)} of {_bytes(memory.allocated)} for backward"
        elif memory.wanted > memory.capacity > 0:
            title = f"{_bytes(memory.wanted)} asked for at once; the GPU has {_bytes(memory.capacity)}"
        why = "The line that ran out asked last. What is held was taken earlier: by the graph for backward, by parameters and the optimizer, by variables."
        if memory.wanted > memory.capacity > 0:
            why = "This one request is larger than the whole memory of the GPU: look at the sizes on that line."
        return Diagnosis(self.name, title, Confidence.LIKELY, culprits.done(), tuple(facts), why, advice(*fixes))


def _table(memory: FullMemory) -> list[Fact]:
    facts = []
    if memory.saved:
        total = sum(holder.size for holder in memory.saved)
        facts.append(Fact(f"Kept for backward, by line: {'; '.join(_line(holder) for holder in memory.saved)} ({_bytes(total)} in these lines).", Known.OBSERVED))
    if memory.largest:
        facts.append(Fact(f"Largest kept tensors: {'; '.join(f'{holder.what}, {_bytes(holder.size)}{_at(holder)}' for holder in memory.largest)}.", Known.OBSERVED))
    if memory.held:
        facts.append(Fact(f"Also held: {'; '.join(f'{holder.what} {_bytes(holder.size)}' for holder in memory.held)}.", Known.OBSERVED))
    if memory.capacity:
        facts.append(Fact(f"The GPU has {_bytes(memory.capacity)}; torch's tensors take {_bytes(memory.allocated)}.", Known.OBSERVED))
    return facts


def _line(holder: Holder) -> str:
    if holder.place is None:
        return f"{_bytes(holder.size)} by lines that were not recorded"
    return f"{_bytes(holder.size)} in {plural(holder.tensors, 'tensor')} by line {holder.place.span.line}, `{shortened(holder.place.source, 40)}`"


def _at(holder: Holder) -> str:
    return f" by line {holder.place.span.line}" if holder.place is not None else ""


def _bytes(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
