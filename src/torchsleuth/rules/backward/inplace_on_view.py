"""An in-place write into a view that autograd cannot track."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short


class InplaceOnView(CrashRule):
    """An in-place operation was applied to a view that autograd cannot track writes through.

    What happened
    -------------
    A view shares memory with its base. For most views autograd follows a write back to the base. For three kinds it
    cannot, and refuses: one of several views returned by one call (`unbind`, `split`, `chunk`, or `for row in x`), a
    view made under `no_grad`, and a view returned by a custom autograd Function.

    Why
    ---
    To differentiate a write through a view, autograd replaces the history of the base. A call that returned several
    views has one node for all of them, which cannot be replaced for one. A view made under `no_grad` has no history to
    replace, so it is unclear whether the write should count. A custom Function's own backward would be bypassed.

    Example
    -------
    This raises "is a view and is being modified inplace":

        import torch

        x = torch.ones(3, 3, requires_grad=True) * 1
        for row in x:      # iterating makes all rows by one unbind
            row += 1

    Fix
    ---
    Write out of place and collect (`rows.append(row + 1)`, then `torch.stack`), or index the base instead:
    `x[i] += 1` makes one view at a time. For a view made under `no_grad`, move the view and the write to the same side.
    For a custom Function, return a `clone()`.

    Common false explanations
    -------------------------
    "In-place writes into views are not supported." Most are. This runs and prints the right gradient:

        import torch

        x = torch.ones(3, 3, requires_grad=True)
        h = x * 1
        for i in range(3):
            h[i] += 1
        h.sum().backward()
        print(x.grad)
    """

    name = "inplace-on-view"
    messages = (
        r"is a view and is being modified in-?place",
        r"A view was created in (no_grad|inference) mode and is being modified in-?place",
        r"is a view and its base or another view of its base has been modified in-?place",
        r"A view was created in (no_grad|inference) mode and its base or another view of its base has been modified",
    )
    needs = ("inplace_target",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        target, frame = evidence.inplace_target, evidence.user_frame
        if target is None and frame is None:
            return None
        message = evidence.exception.message
        place = target.place if target is not None else frame.place
        read = "its base or another view" in message
        made = re.search(r"Output (\d+) of (\w+) is a view", message)
        several = "returns multiple views" in message
        if several:
            kind = f"one of several views returned by one `{_snake(made[2])}`" if made else "one of several views"
            why = (
                "One call made all these views, so they have one node in the graph; a write into one of them would have to "
                "replace the history of all. PyTorch refuses instead of giving a wrong gradient."
            )
            remedy = (
                "Write out of place and put the pieces together again (`torch.stack` or `torch.cat`), "
                "or index the base: `x[i]` makes one view at a time."
            )
        elif "no_grad mode" in message or "inference mode" in message:
            kind = "a view made under no_grad"
            why = (
                "The view was made while no history was kept and is written while history is kept, so it is ambiguous "
                "whether the write should be differentiated. PyTorch asks you to decide."
            )
            remedy = "Make the view and the write both inside the `no_grad` block, or both outside."
        else:
            kind = f"a view returned by the custom Function `{made[2]}`" if made else "a view returned by a custom Function"
            why = (
                "Writing through this view would replace the history that the custom Function's own backward belongs to, "
                "and bypass it. PyTorch refuses instead of giving a wrong gradient."
            )
            remedy = "Return `.clone()` of the view from the Function's forward, or clone it before writing."
        called = target.tensor.called if target is not None else "a tensor"
        label = f"uses {called}, {kind}, after its base was written" if read else f"writes into {called}, {kind}"
        culprits = [place.culprit(Role.OPERAND if read else Role.MUTATE, label)]
        if place.via is not None:
            culprits.insert(0, place.via.culprit(Role.CALL, "your call, in which the library writes"))
        facts = []
        if target is not None:
            if target.made is not None and target.made.span != place.span:
                culprits.append(target.made.culprit(Role.CREATE, f"made {called}, {kind}"))
            size = f" {target.base.size}" if target.base is not None and (target.base.name or target.base.view_of) else ""
            base = f" of {target.base.called}{size}" if target.base is not None else ""
            facts.append(Fact(f"{called} has shape {target.tensor.size} and is {kind}{base}.", Known.OBSERVED))
        verb = "uses" if read else "writes in place into"
        return Diagnosis(
            self.name,
            f"`{short(place.source)}` {verb} {kind}",
            Confidence.CERTAIN if target is not None else Confidence.LIKELY,
            tuple(culprits),
            tuple(facts),
            why,
            (Fix(remedy, Applicability.DISPLAY_ONLY),),
        )



def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Backward0")).lower()
