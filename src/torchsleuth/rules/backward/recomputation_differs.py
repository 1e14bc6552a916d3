"""A checkpointed function that computes something else when backward runs it again."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence, Recomputation
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule


class RecomputationDiffers(CrashRule):
    """`torch.utils.checkpoint` ran a function again in backward, and it did not compute the same.

    What happened
    -------------
    A checkpoint throws away what its function saved for backward, and runs the function once more when backward needs it.
    The second run saved another number of tensors, or tensors of other shapes, than the first.

    Why
    ---
    The function depends on something that has changed in between: an attribute that it changes itself (a counter, a cache
    that grows), a setting that was switched after the forward pass, or random numbers of Python or numpy. A checkpoint
    restores torch's random numbers only.

    Example
    -------
    This raises "A different number of tensors was saved during the original forward and recomputation":

        import torch
        from torch.utils.checkpoint import checkpoint

        class Block(torch.nn.Module):
            calls = 0

            def forward(self, x):
                self.calls += 1
                return x.sin().exp() if self.calls < 2 else x * 1.0

        x = torch.rand(3, requires_grad=True)
        checkpoint(Block(), x, use_reentrant=False).sum().backward()

    Fix
    ---
    Make the decision outside of the function and pass it in as an argument, and change counters and caches outside of it
    too: arguments are the same in both runs.

    Common false explanations
    -------------------------
    "Pass `determinism_check='none'`." That silences the comparison of shapes alone: what comes then is another error, or
    gradients of another computation. Torch's own random numbers are no reason; this runs:

        import torch
        from torch.utils.checkpoint import checkpoint

        x = torch.rand(3, requires_grad=True)
        checkpoint(torch.nn.functional.dropout, x, use_reentrant=False).sum().backward()
    """

    name = "recomputation-differs"
    messages = (
        r"different number of tensors was saved during the original forward and recomputation",
        r"Recomputed values for the following tensors have different metadata",
        r"trying to save more tensors during recomputation",
    )
    needs = ("recomputation",)
    priority = 12

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.recomputation
        if found is None:
            return None
        return Diagnosis(
            self.name,
            f"`{found.function}`, run again by its checkpoint in backward, did not compute the same as in the forward pass",
            Confidence.CERTAIN if len(found.draws) + len({name for name, _ in found.changes}) < 2 else Confidence.LIKELY,
            tuple(_culprits(found)),
            tuple(_facts(evidence.exception.message)),
            "A checkpoint keeps only what goes into its function, and runs the function again when backward needs what it saved. "
            "The second run must do what the first did. " + _reason(found),
            tuple(_fixes(found)),
        )


def _culprits(found: Recomputation) -> list[Culprit]:
    culprits = [place.culprit(Role.CREATE, "not torch's random numbers: the second run draws others") for place in found.draws]
    culprits += [place.culprit(Role.MUTATE, f"changes `{name}`, which the second run then finds changed") for name, place in found.changes]
    if not culprits and found.definition is not None:
        culprits.append(found.definition.culprit(Role.CREATE, f"`{found.function}` was run twice"))
    if found.checkpoint is not None:
        culprits.append(found.checkpoint.culprit(Role.OPERAND, "runs it once in the forward pass, and again in backward"))
    return [*culprits, (found.call.via or found.call).culprit(Role.CALL, "ran it again")]


def _facts(message: str) -> list[Fact]:
    facts = []
    counts = re.search(r"saved during forward: (\d+)\W+Number of tensors saved during recomputation: (\d+)", message)
    if counts:
        facts.append(Fact(f"The forward pass saved {counts[1]} tensor(s), the second run {counts[2]}.", Known.OBSERVED))
    pattern = r"position (\d+):\s*saved metadata: \{'shape': torch\.Size\((\[.*?\])\), 'dtype': torch\.(\w+).*?recomputed metadata: \{'shape': torch\.Size\((\[.*?\])\), 'dtype': torch\.(\w+)"
    for position, before, kind, after, other in re.findall(pattern, message, re.DOTALL)[:3]:
        facts.append(Fact(f"Saved tensor number {position}: {before} {kind} in the forward pass, {after} {other} in the second run.", Known.OBSERVED))
    return facts


def _reason(found: Recomputation) -> str:
    reasons = [f"`{place.source}` draws random numbers that the checkpoint does not restore" for place in found.draws[:2]]
    reasons += [f"`{name}` has been changed by the first run" for name in dict.fromkeys(name for name, _ in found.changes)]
    if not reasons:
        return "What it depends on besides its arguments was not the same any more; which part of it was not observed."
    return f"Here {', and '.join(reasons)}."


def _fixes(found: Recomputation) -> list[Fix]:
    fixes = []
    if found.draws:
        fixes.append("Draw outside of the checkpointed function and pass the decision in as an argument, or draw with torch (`torch.rand(()).item()`), whose state the checkpoint restores.")
    if found.changes:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in found.changes))
        fixes.append(f"Change {names} outside of the checkpointed function, and pass in what it needs as an argument.")
    if not fixes:
        fixes.append("Pass all that the function depends on as arguments, and change no setting between the forward pass and backward.")
    return [Fix(text, Applicability.DISPLAY_ONLY) for text in fixes]
