"""Backward on a tensor that has no history."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence, GradientCut, LostGradient
from torchsleuth.evidence_parts import TensorFact
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role, Span
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short

_MOST_CUTS = 4


class LostGradientRule(CrashRule):
    """`backward()` was called on a tensor that no gradient leads back from.

    What happened
    -------------
    The tensor has no `grad_fn`: no recorded operation made it from anything that requires grad. There is nothing to
    differentiate.

    Why
    ---
    Somewhere the history was cut. `torch.tensor(x)`, `.item()`, `.tolist()` and numpy copy values without history;
    `.detach()` and `.data` cut on purpose; `argmax`, comparisons and casts to integers have no derivative; under
    `torch.no_grad()` or `inference_mode()` nothing is recorded; and if every parameter has `requires_grad=False`,
    nothing starts one. The reentrant form of `torch.utils.checkpoint.checkpoint` records nothing either where none of the
    tensors passed to it requires grad, whatever its parameters do.

    Example
    -------
    This raises "does not require grad":

        import torch

        model = torch.nn.Linear(3, 2)
        losses = [model(torch.ones(3)).sum() for _ in range(4)]
        total = torch.tensor(losses).sum()     # copies the values, leaves the history behind
        total.backward()

    Fix
    ---
    Keep tensors as tensors: `torch.stack(losses).sum()`. Use `softmax` weights where `argmax` was; compute the loss
    outside `no_grad`; un-freeze what should train.

    Common false explanations
    -------------------------
    "Call `loss.requires_grad_()`." Then backward runs and trains nothing: the loss becomes a leaf of its own. This runs,
    and the parameter gets no gradient at all:

        import torch

        w = torch.ones(3, requires_grad=True)
        loss = torch.tensor((w * 2).sum().item()).requires_grad_()
        loss.backward()
        print(w.grad)     # None
    """

    name = "lost-gradient"
    messages = (r"element \d+ of tensors does not require grad and does not have a grad_fn",)
    needs = ("lost",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        lost = evidence.lost
        if lost is None:
            return None
        cuts = lost.cuts[:_MOST_CUTS]
        if cuts:
            title, confidence = f"The gradient of {lost.root.called} is lost at `{short(cuts[0].place.source)}`", _confidence(cuts)
            if cuts[0].reason == "no_grad" and cuts[0].wrapper is not None:
                what = f"`{short((cuts[0].place.via or cuts[0].place).source)}`, which {lost.root.called} was computed from, ran" if lost.recorded else f"{lost.root.called} was computed"
                title = f"{what} under `{short(cuts[0].wrapper.source)}`, so {'it' if not lost.recorded else lost.root.called} has no gradient"
            elif cuts[0].switch is not None:
                title = f"{lost.root.called} was computed after `{short(cuts[0].switch.source)}`, so it has no gradient"
            if lost.frozen_used:
                title, confidence = f"No way leads from {lost.root.called} to a parameter that requires grad: {_frozen_words(lost)}, and the others are cut off", Confidence.LIKELY
        elif lost.frozen and not lost.trainable:
            title, confidence = f"Nothing that {lost.root.called} was computed from requires grad: all parameters are frozen", Confidence.LIKELY
        elif lost.frozen_used:
            title, confidence = f"{lost.root.called} was computed from frozen parameters: {_frozen_words(lost)}", Confidence.LIKELY
        elif lost.bare:
            title, confidence = f"{lost.root.called} was made from bare numbers, which carry no history", Confidence.LIKELY
        elif evidence.recording == "observed":
            title, confidence = f"Nothing that {lost.root.called} was computed from requires grad", Confidence.LIKELY
        else:
            title, confidence = f"{lost.root.called} has no history; where it was lost was not observed", Confidence.POSSIBLE
        return Diagnosis(
            self.name,
            title,
            confidence,
            tuple(_culprits(lost, cuts)),
            tuple(_facts(lost, cuts, evidence.recording)),
            _explanation(lost, cuts, evidence.recording),
            tuple(_fixes(lost, cuts)),
        )



def _frozen_words(lost: LostGradient) -> str:
    more = f" and {len(lost.frozen_used) - 1} more are" if len(lost.frozen_used) > 1 else " is"
    return f"`{lost.frozen_used[0]}`{more} frozen (requires_grad=False)"


def _confidence(cuts: tuple[GradientCut, ...]) -> Confidence:
    """Seen as it happened, or read off the source: then likely if it is the only cut there."""
    if all(cut.place.known is Known.OBSERVED for cut in cuts):
        return Confidence.CERTAIN
    return Confidence.LIKELY if len(cuts) == 1 else Confidence.POSSIBLE


_PAIRED = frozenset({"max", "min", "sort", "topk", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin"})  # (values, indices)
_LABELS = {
    "detach": "cuts the history on purpose",
    "python": "hands the values to Python; what is made from them has no history",
    "copy": "copies the values and leaves their history behind",
    "no_grad": "runs while no history is recorded",
    "integer": "has an integer or boolean result, which has no derivative",
    "checkpoint": "runs the function without recording, and none of the tensors it is given requires grad",
    "gradient": "computes a gradient without recording how (create_graph is off)",
    "not differentiable": "returns a tensor without history",
}


def _culprits(lost: LostGradient, cuts: tuple[GradientCut, ...]) -> list[Culprit]:
    found: list[Culprit] = []
    seen = set()
    if lost.frozen_at and (lost.frozen_used or not cuts and lost.frozen and not lost.trainable):
        what = "the parameters" if not lost.frozen_used or not lost.trainable else f"parameters that {lost.root.called} was computed from"
        what = what if len(lost.frozen_at) == 1 else f"some of {what}"
        found += [(place.via or place).culprit(Role.LOST_GRAD, f"froze {what}") for place in lost.frozen_at]
        found += [place.culprit(Role.CALL, "had them frozen") for place in lost.frozen_by]
    for cut in cuts:
        if cut.wrapper is not None and cut.wrapper.in_library and cut.place.via is not None:
            if cut.place.via.span not in seen:  # each of the user's calls, and the library's line once, after them
                seen.add(cut.place.via.span)
                found.append(cut.place.via.culprit(Role.CALL, "your call, in which nothing is recorded for backward"))
            continue
        if cut.wrapper is not None and cut.wrapper.span not in seen:
            seen.add(cut.wrapper.span)
            found.append(cut.wrapper.culprit(Role.LOST_GRAD, "nothing inside is recorded for backward"))
            # The wrapper is what to look at; of the many operations inside, the user's own call is enough.
            inner = cut.place.via or cut.place
            if inner.span not in seen:
                seen.add(inner.span)
                found.append(inner.culprit(Role.CALL, "computed under it"))
            continue
        if cut.reason == "no_grad" and seen:
            continue
        if cut.switch is not None:
            seen.add(cut.switch.span)
            found.append(cut.switch.culprit(Role.LOST_GRAD, "switched recording off, and it stayed off"))
            found.append((cut.place.via or cut.place).culprit(Role.CALL, "computed while it was off"))
            continue
        if cut.place.via is not None:
            found.append(cut.place.via.culprit(Role.CALL, "your call, in which the history ends"))
        if cut.place.span not in seen and not any(_inside(cut.place.span, span) for span in seen):
            seen.add(cut.place.span)
            label = f"cuts the history, and {_taker(cut)} takes the values" if cut.reason == "detach" and cut.handed else _LABELS[cut.reason]
            label = "gives values and positions; positions are integers, which have no derivative" if cut.reason == "integer" and cut.operation in _PAIRED else label
            found.append(cut.place.culprit(Role.LOST_GRAD, f"`{_plain(cut.operation)}` {label}"))
    off = {cut.wrapper.span: cut.wrapper for cut in cuts if cut.wrapper is not None and cut.wrapper.span not in seen}
    found += [wrapper.culprit(Role.LOST_GRAD, "nothing inside is recorded for backward") for wrapper in off.values()]
    if not cuts and lost.made is not None and lost.made.span != lost.call.span:
        source = "bare numbers" if lost.bare else "nothing that requires grad"
        found.append((lost.made.via or lost.made).culprit(Role.CREATE, f"made {lost.root.called}, from {source}"))
    found.append(lost.call.culprit(Role.CALL, f"{lost.root.called} {lost.root.size} has no grad_fn"))
    return found


def _inside(span: Span, other: Span) -> bool:
    """One link of a chain such as `x.detach().numpy()` is enough."""
    return span.file == other.file and span.line == other.line and other.column <= span.column and span.end_column <= other.end_column


def _sized(tensor: TensorFact) -> str:
    """`x` [2, 3]; a tensor without a name is called by its shape already."""
    return f"{tensor.called} {tensor.size}" if tensor.name or tensor.view_of else f"A{tensor.called[1:]}"


def _plain(operation: str) -> str:
    return {"__float__": "float()", "__int__": "int()", "__array__": "numpy", "data": ".data", "item": ".item()",
            "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}.get(operation, operation)  # fmt: skip


def _facts(lost: LostGradient, cuts: tuple[GradientCut, ...], recording: str) -> list[Fact]:
    facts = [
        Fact(
            f"{lost.root.called} has shape {lost.root.size}, dtype {lost.root.dtype}, requires_grad={lost.root.requires_grad} "
            "and no grad_fn.",
            Known.OBSERVED,
        )
    ]
    for cut in cuts:
        if cut.tensor is not None and cut.reason not in ("no_grad", "checkpoint"):
            facts.append(
                Fact(
                    f"{_sized(cut.tensor)} required grad when it went into `{short(cut.place.source)}`; "
                    "what came out did not.",
                    Known.OBSERVED,
                )
            )
    for cut in cuts:
        if cut.is_new:
            facts.append(Fact(f"Line {cut.place.span.line} ran in this round for the first time; the rounds before it went well without it.", Known.OBSERVED))
    if lost.frozen_used and lost.trainable:
        shown = ", ".join(f"`{name}`" for name in lost.frozen_used[:3])
        more = f" and {len(lost.frozen_used) - 3} more" if len(lost.frozen_used) > 3 else ""
        facts.append(Fact(f"{lost.root.called} was computed from {shown}{more}, which had requires_grad=False then, while recording was on.", Known.OBSERVED))
    elif lost.frozen:
        shown = ", ".join(f"`{name}`" for name in lost.frozen[:3])
        more = f" and {len(lost.frozen) - 3} more" if len(lost.frozen) > 3 else ""
        of = "All" if not lost.trainable else f"{len(lost.frozen)} of {len(lost.frozen) + lost.trainable}"
        facts.append(Fact(f"{of} parameters in sight have requires_grad=False: {shown}{more}.", Known.OBSERVED))
    if recording != "observed" and (not cuts or cuts[0].place.known is Known.INFERRED):
        facts.append(
            Fact("The exact log had ended before this was computed; `torchsleuth run --deep` watches throughout.", Known.OBSERVED)
        )
    if not lost.grad_enabled:
        facts.append(Fact("Gradient recording was switched off when backward was called.", Known.OBSERVED))
    return facts


def _explanation(lost: LostGradient, cuts: tuple[GradientCut, ...], recording: str) -> str:
    if not cuts:
        if lost.frozen and not lost.trainable:
            return (
                "Autograd records an operation only if one of its inputs requires grad. Every parameter in sight has "
                "requires_grad=False, so nothing was recorded and there is nothing to differentiate."
            )
        if lost.frozen_used:
            return (
                "Autograd records an operation only if one of its inputs requires grad. The parameters that this was computed from are "
                "frozen (requires_grad=False), so nothing was recorded and there is nothing to differentiate."
            )
        if lost.bare:
            return (
                "Autograd records operations on tensors. A tensor made from Python or numpy values starts without history, "
                "even where those values were computed from tensors that require grad."
            )
        return (
            "Autograd records an operation only if one of its inputs requires grad, and only while recording is on. "
            + ("None of the tensors this one was computed from does." if recording == "observed" else "Here it did not.")
        )
    reasons = {cut.reason for cut in cuts}
    text = "Backward follows the recorded operations from the loss to the parameters. "
    if cuts[0].reason == "integer" and cuts[0].operation in _PAIRED:
        return text + f"Of what `{short(cuts[0].place.source)}` gives, the positions are integers: they jump, so they have no derivative and no history. The values have one.{_cut_before(cuts)}"
    if cuts[0].reason == "integer":
        return text + f"`{short(cuts[0].place.source)}` gives integers or booleans: they jump, so they have no derivative and no history.{_cut_before(cuts)}"
    if "no_grad" in reasons and lost.frozen_used:
        return text + (
            "Here one part was computed from frozen parameters (requires_grad=False), the other while recording was off, so the loss does not "
            "know where it came from. One of the two was meant to be trained."
        )
    if "no_grad" in reasons and lost.recorded:
        return text + "Here the way ends at what was computed while recording was off, so the loss does not know where that came from."
    if "no_grad" in reasons:
        return text + "Here they were computed while recording was off, so the loss does not know where it came from."
    if "checkpoint" in reasons:
        return text + (
            "The reentrant checkpoint (`use_reentrant=True`, its default) runs its function without recording and stands for all of it "
            "in the graph only if one of the tensors passed to it requires grad. Parameters inside the function do not count."
        )
    cut = next((cut for reason in ("gradient", "copy", "python", "detach") for cut in cuts if cut.reason == reason), cuts[0])
    source = short(cut.place.source)
    if cut.reason == "gradient":
        said = f"The gradient that `{source}` returns is a plain value unless `create_graph=True` asks for its history."
    elif cut.reason in ("copy", "python"):
        said = f"`{source}` passes on bare numbers; the new tensor made from them knows nothing of the parameters."
    elif cut.reason == "detach" and _hands_over(cut):
        said = f"`{source}{_hands_over(cut)}` hands bare numbers on; what is computed from them knows nothing of the parameters."
    elif cut.reason == "detach" and cut.handed:
        said = f"`{source}` goes into {_taker(cut)} as bare numbers; what is computed from them knows nothing of the parameters."
    elif cut.reason == "detach":
        said = f"`{source}` returns the same values without their history."
    else:
        said = f"`{source}` returned a tensor without history."
    return text + said


def _cut_before(cuts: tuple[GradientCut, ...]) -> str:
    """What was cut already when it came to the choice, where that was on its way."""
    first = next((cut for cut in cuts[1:] if cut.reason != "integer"), None) if cuts[0].tensor is None else None
    if first is None:
        return ""
    earlier = first.wrapper or first.switch or first.place
    return f" `{short(earlier.source)}` had cut it before; without that it would be lost here all the same."


def _hands_over(cut: GradientCut) -> str:
    """`.numpy()` where that follows the detach in the source: the detach is there only because numpy asks for it."""
    excerpt, span = cut.place.excerpt, cut.place.span
    line = excerpt.lines[span.end_line - excerpt.first] if excerpt is not None and span.end_line - excerpt.first < len(excerpt.lines) else ""
    following = re.match(r"(\.cpu\(\))?\.(numpy|item|tolist)\(\)", line[span.end_column - 1 :])
    return following[0] if following else ""


def _taker(cut: GradientCut) -> str:
    return "numpy" if cut.handed in ("__array__", "numpy") else f"`{_plain(cut.handed)}`"


def _fixes(lost: LostGradient, cuts: tuple[GradientCut, ...]) -> list[Fix]:
    def advice(text: str, meaning: str = "") -> Fix:
        return Fix(text, Applicability.DISPLAY_ONLY, meaning=meaning)

    if not cuts:
        if lost.frozen and not lost.trainable or lost.frozen_used:
            return [advice("Set `requires_grad_(True)` on the parameters that should train.")]
        if lost.bare:
            return [advice("Keep the value a tensor on the way to the loss; use `.item()`, `.tolist()` and numpy for logging only.")]
        return [advice("Make the loss depend on a parameter, or on a tensor with `requires_grad=True`.")]
    cut = cuts[0]
    if cut.switch is not None:
        return [advice("Use `with torch.no_grad():` around what needs no gradient: it ends with its block.")]
    if cut.reason == "no_grad":
        return [advice("Compute the loss outside the `no_grad` / `inference_mode` block or function.")]
    if cut.reason == "checkpoint":
        return [
            advice("Pass `use_reentrant=False`: that form records what runs inside as usual."),
            advice("Or let an input of the checkpoint require grad (`enable_input_require_grads()` of a transformers model does that)."),
        ]
    if cut.reason == "gradient":
        return [advice("Pass `create_graph=True` to it, so that its result can be differentiated again.")]
    if cut.reason == "detach" and _hands_over(cut):
        return [advice(f"Compute it with torch functions: `{short(cut.place.source)}{_hands_over(cut)}` passes on bare numbers.")]
    if cut.reason == "detach" and cut.handed:
        return [advice(f"Compute it with torch functions, on the tensor itself: {_taker(cut)} passes on bare numbers.")]
    if cut.reason == "detach":
        return [advice(f"Leave out `{_plain(cut.operation)}` on the way to the loss; detach only what is logged or kept.")]
    if cut.reason == "integer":
        return [
            advice("Use the scores themselves (cross-entropy on logits), or a soft selection: `softmax(scores) @ values`."),
            advice("Where the choice must stay hard, use a straight-through estimator.", "Its gradient is an approximation."),
        ]
    if cut.operation in ("tensor", "as_tensor"):
        return [advice("Put tensors together with `torch.stack` (or `torch.cat`, or `sum`) instead of `torch.tensor`.")]
    return [advice("Keep the value a tensor on the way to the loss; use `.item()`, `.tolist()` and numpy for logging only.")]
