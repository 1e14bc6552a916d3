"""`autograd.grad` with respect to something that has no gradient to give."""

from __future__ import annotations

from torchsleuth.evidence import Evidence, GradInput
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first


class GradInputRule(CrashRule):
    """`torch.autograd.grad` was asked for the gradient of a tensor that does not require grad or was not used.

    What happened
    -------------
    `torch.autograd.grad(outputs, inputs)` differentiates the outputs with respect to each of the inputs. One input has no
    place in the recorded graph: it does not require grad, or the outputs were not computed from it.

    Why
    ---
    Autograd records an operation only if something that goes into it requires grad *at that moment*. Data and the result
    of `detach()` do not; a gradient penalty or an adversarial attack has to ask for it, before the forward pass. And a
    gradient belongs to the very tensor that went into the computation: `x[:, 0]` or `x.clone()` written once more makes a
    new tensor, which the outputs know nothing of.

    Example
    -------
    This raises "One of the differentiated Tensors does not require grad":

        import torch

        weight = torch.ones(3, requires_grad=True)
        x = torch.rand(3)
        score = (weight * x).sum()
        torch.autograd.grad(score, x)

    Fix
    ---
    Call `x.requires_grad_(True)` before the outputs are computed from `x`. Differentiate with respect to the tensor that
    was used, and take the part you need from its gradient: `grad(u, x)[0][:, 0]`, not `grad(u, x[:, 0])`.

    Common false explanations
    -------------------------
    "Set `allow_unused=True`." That turns the error into a gradient of None and helps only where the tensor is meant to be
    unused. This runs and prints None:

        import torch

        x = torch.rand(4, 2, requires_grad=True)
        u = (x ** 2).sum()
        print(torch.autograd.grad(u, x[:, 0], allow_unused=True)[0])
    """

    name = "grad-input"
    messages = (
        r"One of the differentiated Tensors does not require grad",
        r"One of the differentiated Tensors appears to not have been used in the graph",
        r"The differentiated Tensor at index \d+ appears to not have been used in the graph",
        r"element \d+ of tensors does not require grad and does not have a grad_fn",
    )
    needs = ("grad_input", "lost")
    priority = 12

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.grad_input
        if found is None:
            return None
        if not found.root_has_history and evidence.lost is not None and evidence.lost.cuts:
            return None  # the outputs were cut off from more than this: another rule's
        unused = found.tensor.requires_grad
        return Diagnosis(
            self.name,
            _title(found, unused),
            Confidence.CERTAIN,
            tuple(_culprits(found, unused)),
            tuple(_facts(found, unused)),
            _explanation(found, unused),
            tuple(_fixes(found, unused)),
        )


def _title(found: GradInput, unused: bool) -> str:
    call = short((found.call.via or found.call).source)
    if unused and found.cut is not None:
        return f"{upper_first(_root(found))} has its values from {found.tensor.called}, but the way back is cut at `{short(found.cut.place.source)}`"
    if unused:
        return f"{upper_first(_root(found))} was not computed from {found.tensor.called}, with respect to which `{call}` differentiates it"
    return f"{upper_first(found.tensor.called)} does not require grad, and `{call}` is to differentiate with respect to it"


def _root(found: GradInput) -> str:
    return found.root.called if found.root is not None else "the output"


def _culprits(found: GradInput, unused: bool) -> list[Culprit]:
    cut = found.cut if unused else None
    what = "cannot be reached" if cut is not None else "was not used for it" if unused else "does not require grad"
    culprits = [(found.call.via or found.call).culprit(Role.OPERAND, f"{found.tensor.called} {what}")]
    if cut is not None:
        culprits.append((cut.place.via or cut.place).culprit(Role.LOST_GRAD, f"`{cut.operation}` cuts the history"))
    for place, label in ((found.made, f"made {found.tensor.called}"), (found.root_made if unused else None, f"made {_root(found)}{'' if found.cut is not None else ', from others'}")):
        place = place.via or place if place is not None else None
        if place is not None and all((place.span.file, place.span.line) != (culprit.span.file, culprit.span.line) for culprit in culprits):
            culprits.append(place.culprit(Role.CREATE, label))
    return culprits


def _facts(found: GradInput, unused: bool) -> list[Fact]:
    tensor = found.tensor
    facts = [
        Fact(
            f"{upper_first(tensor.called)} has shape {tensor.size}, dtype {tensor.dtype}, requires_grad={tensor.requires_grad}"
            f"{' and no grad_fn' if not tensor.requires_grad else ''}.",
            Known.OBSERVED,
        )
    ]
    if unused and found.root_leaves:
        listed = ", ".join(f"`{name}`" for name in found.root_leaves)
        facts.append(Fact(f"Leaves that {_root(found)} was computed from: {listed}.", Known.OBSERVED))
    if unused and found.made_of:
        facts.append(
            Fact(f"{upper_first(tensor.called)} is a view of `{found.made_of}`, made here; {_root(found)} was computed from `{found.made_of}` itself.", Known.OBSERVED)
        )
    return facts


def _explanation(found: GradInput, unused: bool) -> str:
    if not unused:
        return (
            f"Autograd records what happens to a tensor only if it requires grad when it is used. {upper_first(found.tensor.called)} did not, so "
            "nothing was recorded that leads back to it."
        )
    if found.made_of:
        return (
            "A gradient belongs to the very tensor that went into the computation. "
            f"{upper_first(found.tensor.called)} makes a new tensor, a view of `{found.made_of}`; {_root(found)} was computed without it."
        )
    if found.cut is not None:
        return (
            f"{upper_first(_root(found))} was computed from what `{short(found.cut.place.source)}` returns: the same values without their history. "
            f"So no recorded operation leads back to {found.tensor.called}, from which they came."
        )
    return f"No recorded operation leads from {_root(found)} back to {found.tensor.called}: it took no part in computing it."


def _fixes(found: GradInput, unused: bool) -> list[Fix]:
    name = found.tensor.name or "x"
    if unused and found.made_of:
        return [Fix(f"Differentiate with respect to `{found.made_of}` and take the part you need from that gradient.", Applicability.DISPLAY_ONLY)]
    if unused and found.cut is not None:
        return [Fix(f"Leave out `{found.cut.operation}` on this way. A gradient that is part of it (`v - lr * g`) needs `create_graph=True` to be differentiated, too.", Applicability.DISPLAY_ONLY)]
    if unused:
        return [
            Fix(f"Compute {_root(found)} from {found.tensor.called}, or differentiate with respect to what it was computed from.", Applicability.DISPLAY_ONLY),
            Fix("If it may be unused, pass `allow_unused=True`.", Applicability.DISPLAY_ONLY, meaning="Its gradient is then None."),
        ]
    if not found.tensor.dtype.startswith(("float", "bfloat", "complex")):
        return [Fix(f"`{name}` has dtype {found.tensor.dtype}: only real and complex tensors can have a gradient.", Applicability.DISPLAY_ONLY)]
    return [Fix(f"Call `{name}.requires_grad_(True)` before {_root(found)} is computed from it.", Applicability.DISPLAY_ONLY)]
