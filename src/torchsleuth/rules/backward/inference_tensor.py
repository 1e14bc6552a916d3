"""A tensor made under inference_mode used where autograd records."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first


class InferenceTensor(CrashRule):
    """A tensor made under `torch.inference_mode()` was used where gradients are recorded.

    What happened
    -------------
    Tensors made under `inference_mode` carry no version counter and can never take part in autograd. An operation
    outside of it tried to save one for backward, or to write into it.

    Why
    ---
    `inference_mode` is faster than `no_grad` because it gives up this bookkeeping for good: the tensor stays an
    *inference tensor* after the block has ended. Features computed once with a frozen backbone are the usual case.

    Example
    -------
    This raises "Inference tensors cannot be saved for backward":

        import torch

        with torch.inference_mode():
            features = torch.ones(2, 3)
        weight = torch.ones(3, requires_grad=True)
        (features * weight).sum().backward()

    Fix
    ---
    Use `torch.no_grad()` instead of `torch.inference_mode()` where the result goes into training, or `clone()` the
    tensor outside the block.

    Common false explanations
    -------------------------
    "`detach()` helps." A detached inference tensor is still one; this raises "Inference tensors cannot be saved":

        import torch

        with torch.inference_mode():
            features = torch.ones(2, 3)
        weight = torch.ones(3, requires_grad=True)
        (features.detach() * weight).sum().backward()
    """

    name = "inference-tensor"
    messages = (r"Inference tensors cannot be saved for backward", r"Inplace update to inference tensor outside InferenceMode")
    needs = ("inference",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        frame = evidence.user_frame
        if frame is None:
            return None
        cuts = evidence.inference
        called = upper_first(cuts[0].tensor.called) if cuts and cuts[0].tensor is not None else "A tensor"
        write = "Inplace update" in evidence.exception.message
        verb = "is written in" if write else "goes into"
        culprits = [frame.place.culprit(Role.MUTATE if write else Role.OPERAND, f"{called} {verb} this, where gradients are recorded")]
        facts = []
        for cut in cuts:
            if cut.wrapper is not None:
                culprits.append(cut.wrapper.culprit(Role.CREATE, "everything made under it is an inference tensor"))
            if all(cut.place.span != culprit.span for culprit in culprits):
                culprits.append(cut.place.culprit(Role.CREATE, f"made {called}"))
            if cut.tensor is not None:
                facts.append(Fact(f"{called} {cut.tensor.size} is an inference tensor (is_inference() is True).", Known.OBSERVED))
        return Diagnosis(
            self.name,
            f"{called}, made under inference_mode, is used in `{short(frame.place.source)}`, where gradients are recorded",
            Confidence.CERTAIN if cuts else Confidence.LIKELY,
            tuple(culprits),
            tuple(facts),
            "Tensors made under inference_mode keep no version counter, so autograd can neither save them nor notice writes into "
            "them. They stay such tensors after the block has ended.",
            (
                Fix("Use `torch.no_grad()` instead of `torch.inference_mode()` there.", Applicability.DISPLAY_ONLY),
                Fix("Or clone the tensor outside the block: `.clone()` makes a normal one.", Applicability.DISPLAY_ONLY),
            ),
        )
