"""A gradient lost on the way: take the cut out, or replace it by something that has a derivative."""

from __future__ import annotations

from torchsleuth.evidence import Evidence, GradientCut, LostGradient
from torchsleuth.fixes.cuts import handed_on, without_cut
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.hard_choices import softened
from torchsleuth.fixes.recording import not_reentrant, recorded
from torchsleuth.fixes.script import Scripts
from torchsleuth.fixes.trainable import leaf_requires_grad, thawed
from torchsleuth.model import Diagnosis, Edit, Fix, Known
from torchsleuth.wording import short


class LostGradientFixer(Fixer):
    rule = "lost-gradient"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        lost = evidence.lost
        if lost is None:
            return []
        if not lost.cuts:
            return [thawed(scripts, lost), leaf_requires_grad(scripts, lost)]
        if lost.cuts[0].reason == "checkpoint":
            return [not_reentrant(scripts, lost)]
        if lost.cuts[0].reason != "integer" and any(cut.reason == "no_grad" for cut in lost.cuts):
            return recorded(scripts, lost)
        # A detach was written on purpose. Where something else cuts too, that alone may be the mistake.
        accidental = [cut for cut in lost.cuts if cut.reason != "detach" or _handed_over(scripts, cut)]
        first = _opened(scripts, lost, accidental) if 0 < len(accidental) < len(lost.cuts) else None
        whole = _opened(scripts, lost, list(lost.cuts))
        return [first, whole] if first is not None or whole is not None else softened(scripts, lost)


def _opened(scripts: Scripts, lost: LostGradient, cuts: list[GradientCut]) -> Fix | None:
    """These cuts taken out; None where one of them cannot be."""
    edits: list[Edit] = []
    words: list[str] = []
    for cut in cuts:
        found = without_cut(scripts, cut, lost)
        if found is None:
            return None
        edits += found[0]
        words.append(found[1])
    meaning = "The gradient then flows through all of these places." if len(cuts) > 1 else ""
    if len(cuts) < len(lost.cuts):
        others = ", ".join(f"`{short(cut.place.source, 40)}`" for cut in lost.cuts if cut not in cuts)
        meaning = f"No gradient flows through {others}, as it is written there."
    if any(cut.place.known is Known.INFERRED for cut in cuts):
        meaning = f"{meaning} Right if the gradient was lost there, which was not observed.".strip()
    return scripts.fix("; ".join(dict.fromkeys(words)) + ".", list(dict.fromkeys(edits)), meaning, safe=not meaning)


def _handed_over(scripts: Scripts, cut: GradientCut) -> bool:
    """The detach is only there because numpy asks for it: `x.detach().numpy()`."""
    found = scripts.node_at(cut.place)
    return bool(cut.handed) or found is not None and handed_on(*found) is not None
