"""Backward through a graph whose saved values have been freed."""

from __future__ import annotations

import re

from torchsleuth.evidence import CarriedTensor, Evidence, FreedGraph
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first


class FreedGraphRule(CrashRule):
    """`backward()` went through a part of the graph that an earlier `backward()` had already consumed.

    What happened
    -------------
    `backward()` frees the values that operations had saved as soon as it has used them. A later `backward()` reached
    operations whose saved values are gone.

    Why
    ---
    Usually nobody wants to differentiate the old part again: it hangs on to the new graph by a tensor that was carried
    over. Typical carriers: the hidden state of a recurrent net kept from one batch to the next; a running sum of losses
    (`total = total + loss`, then `total.backward()` in every step); a part computed once before the loop and used in
    every step; one encoder output used by two losses that are each given their own `backward()`.

    Example
    -------
    This raises "backward through the graph a second time":

        import torch

        w = torch.ones(3, requires_grad=True)
        state = torch.zeros(3)
        for _ in range(2):
            state = torch.tanh(state + w)     # the new state hangs on to the old graph
            state.sum().backward()

    Fix
    ---
    Cut what is carried over where it is carried: `state = state.detach()` at the start of each step. For two losses of
    one forward pass, add them and call `backward()` once. `retain_graph=True` is right only if you do want to go through
    the same graph again.

    Common false explanations
    -------------------------
    "Set `retain_graph=True`." It hides the symptom: with a carried state every step then differentiates the whole
    history again, slower and slower, until memory runs out or an in-place update of the weights raises another error.
    This runs, and the gradient contains the first step twice:

        import torch

        w = torch.ones(1, requires_grad=True)
        state = torch.zeros(1)
        for _ in range(2):
            state = state + w
            state.sum().backward(retain_graph=True)
        print(w.grad)     # 1 + 2 = 3, not 1 + 1
    """

    name = "freed-graph"
    messages = (r"backward through the graph a second time", r"saved tensors after they have already been freed")
    needs = ("freed",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        freed = evidence.freed
        if freed is None:
            return None
        carried = freed.carried[0] if freed.carried else None
        if carried is not None:
            verb = "carry" if len(carried.names) > 1 else "carries"
            title = f"{upper_first(_carried_name(carried))} {verb} a graph that {_earlier(freed)} has freed into this one"
            if freed.needless is not None:
                title = f"{upper_first(_earlier(freed))} went through {_carried_name(carried)} and freed its graph, which this backward is for"
        elif freed.freed_by_another and freed.first is not None:
            title = f"`{short(freed.first.source)}` freed the graph of {_root(freed)}, which is needed again"
        elif freed.same_root:
            title = f"`backward()` was called a second time on {_root(freed)}"
        elif freed.failing is not None and freed.first is not None:
            title = f"`{short(freed.failing.source)}` belongs to a graph that an earlier backward has freed"
        else:
            title = "`backward()` went through a graph that had already been freed"
        certain = carried is not None or freed.same_root or (freed.failing is not None and freed.first is not None)
        return Diagnosis(
            self.name,
            title,
            Confidence.CERTAIN if certain and evidence.recording != "none" else Confidence.LIKELY,
            tuple(_culprits(freed)),
            tuple(_facts(freed)),
            _explanation(freed, carried),
            tuple(_fixes(freed, carried)),
        )



def _root(freed: FreedGraph) -> str:
    return freed.root.called if freed.root is not None else "the same tensor"


def _earlier(freed: FreedGraph) -> str:
    """The backward that freed it, by its source where that is another one than the one that failed."""
    if freed.first is not None and freed.first.span != freed.second.span:
        return f"`{short(freed.first.source)}`"
    return "an earlier backward"


def _carried_name(carried: CarriedTensor) -> str:
    if carried.within:
        return f"an element of `{carried.tensor.name}`"
    if carried.names:
        return " and ".join(f"`{name}`" for name in carried.names)
    made = carried.made.via or carried.made if carried.made is not None else None
    return f"the result of `{short(made.source, 60)}`" if made is not None and made.source else f"a tensor of shape {carried.tensor.size}"


def _culprits(freed: FreedGraph) -> list[Culprit]:
    found: list[Culprit] = []
    if freed.needless is not None:
        place = freed.needless.via or freed.needless
        found.append(place.culprit(Role.OPERAND, f"takes {_carried_name(freed.carried[0])} with its graph into {_earlier(freed)}, which has no use for it"))
    for item in freed.carried:
        made = item.made.via if item.made is not None and item.made.via is not None else item.made
        used = item.used.via if item.used is not None and item.used.via is not None else item.used
        name = _carried_name(item)
        if item.kept is not None and all(item.kept.span != other.span for other in found):
            found.append(item.kept.culprit(Role.CREATE, f"keeps {name} for the next round, graph and all"))
        if made is not None and used is not None and made.span == used.span:
            found.append(made.culprit(Role.CREATE, f"builds on {name} of the round before, with the freed graph"))
            continue
        if used is not None:
            found.append(used.culprit(Role.OPERAND, f"uses {name}, made before the graph was freed"))
        if item.stored is not None and not freed.alone:
            found.append(item.stored.culprit(Role.CREATE, "is kept from here on, graph and all"))
        if made is not None:
            found.append(made.culprit(Role.CREATE, f"made {name}" if item.names else "made it"))
        if item.during is not None and not item.names:  # else its name leads there
            found.append(item.during.culprit(Role.CREATE, "ran once: that is when it was made"))
    if not freed.carried and freed.failing is not None:
        place = freed.failing.via or freed.failing
        what = f"made {_root(freed)}, before both calls" if freed.same_root else "shared by both backward calls"
        found.append(place.culprit(Role.CREATE, what))
    if freed.first is not None and freed.first.span != freed.second.span:
        found.append(freed.first.culprit(Role.CALL, "consumed the graph first"))
    again = "consumed it in an earlier iteration, and failed in this one"
    same = freed.first is not None and freed.first.span == freed.second.span
    found.append(freed.second.culprit(Role.CALL, again if same else "went through it again"))
    return found


def _facts(freed: FreedGraph) -> list[Fact]:
    facts = []
    if freed.consumptions:
        times = "once" if freed.consumptions == 1 else f"{freed.consumptions} times"
        facts.append(Fact(f"backward had run {times} before the one that failed.", Known.OBSERVED))
    for text in dict.fromkeys(f"{upper_first(_carried_name(item))} {_description(item)} before the graph was freed and used by `{item.used_by}` after it." for item in freed.carried):
        facts.append(Fact(text, Known.OBSERVED))
    if freed.needless is not None:
        behind = ", ".join(f"`{name}`" for name in freed.behind[:2]) + (f" and {len(freed.behind) - 2} more" if len(freed.behind) > 2 else "")
        facts.append(Fact(f"After {_earlier(freed)} an optimizer has updated other weights, and none of those that {_carried_name(freed.carried[0])} was computed with ({behind}); these have no gradient now.", Known.OBSERVED))
    if freed.same_root and not freed.freed_by_another:
        facts.append(Fact(f"Both calls were made on {_root(freed)}, without a new forward pass in between.", Known.OBSERVED))
    return facts


def _description(item: CarriedTensor) -> str:
    if len(item.names) > 1:
        return "were made"
    shape = f"shape {item.tensor.size}, " if item.names or item.made is not None else ""
    return f"({shape}made by `{item.made_by}`) was made"


def _explanation(freed: FreedGraph, carried: CarriedTensor | None) -> str:
    start = "`backward()` frees the values saved for it as soon as it has used them. "
    if carried is not None and freed.needless is not None:
        name = _carried_name(carried)
        return (
            f"{start}{upper_first(_earlier(freed))} served other weights than those that {name} was computed with: the gradients that it gave to these were "
            f"thrown away. But its loss was computed from {name} with all its history, so it went through that too. This backward is the one that "
            f"needs the history of {name}, and finds the values gone."
        )
    if carried is not None:
        name = _carried_name(carried)
        return (
            f"{start}{upper_first(name)} {'were' if len(carried.names) > 1 else 'was'} computed before {_earlier(freed)}, which went through that history. What is differentiated "
            f"now was computed from {name} after that, so this backward runs on into the old graph, where the values are gone."
        )
    if freed.freed_by_another and freed.first is not None:
        return (
            f"{start}`{short(freed.first.source)}` differentiates a gradient of {_root(freed)}, so it went through the graph of {_root(freed)} too, and "
            "did not keep it. The next call needs that graph again."
        )
    if freed.same_root:
        return f"{start}The second call needs them again and they are gone."
    if freed.failing is not None:
        return f"{start}The two backward calls share part of the graph, and the second finds the shared part freed."
    return f"{start}An earlier backward has gone through part of this graph; which one was not observed."


_ONE_BACKWARD = Fix(
    "If it is a sum of losses, call `backward()` once after the loop, or on the current loss only; sum `loss.item()` for logging.",
    Applicability.DISPLAY_ONLY,
)


def _fixes(freed: FreedGraph, carried: CarriedTensor | None) -> list[Fix]:
    if carried is not None and freed.needless is not None:
        place = freed.needless.via or freed.needless
        how = ", ".join(f"`{name}.detach()`" for name in carried.names) or "`.detach()` on it"
        return [Fix(f"Detach it for the first loss: {how} in `{short(place.source)}` (line {place.span.line}).", Applicability.DISPLAY_ONLY)]
    if carried is not None and carried.used is not None and re.match(r"[\w.\[\]]+\.[a-z]\w*[a-z]_\(", carried.used.source):
        place = carried.used.via or carried.used
        return [
            Fix(
                f"Write under `with torch.no_grad():` in line {place.span.line}, and detach what is kept where it is first made.",
                Applicability.DISPLAY_ONLY,
                meaning="What is written is then no part of what is differentiated.",
            )
        ]
    if carried is not None and freed.alone:
        made = carried.made.via or carried.made if carried.made is not None else None
        what = f"`{short(made.source, 60)}`" if made is not None and made.source else _carried_name(carried)
        return [
            Fix(
                f"Compute {what} again before each backward: all that this one leads to was computed before the graph was freed, so detached there would be nothing to train.",
                Applicability.DISPLAY_ONLY,
                meaning="It is then computed with the weights of that moment.",
            )
        ]
    if carried is not None and carried.within:
        return [
            Fix(
                f"Detach the elements of `{carried.tensor.name}` after each backward, or empty it: what the earlier rounds have put there has had its backward.",
                Applicability.DISPLAY_ONLY,
                meaning="Gradients then stop there.",
            )
        ] + ([_ONE_BACKWARD] if carried.used_by == "add" else [])
    if carried is not None:
        line = f" (line {carried.used.span.line})" if carried.used is not None else ""
        line = f" (line {carried.kept.span.line}, where it is kept)" if carried.kept is not None else line
        named = carried.used is None or carried.kept is not None or all(name in carried.used.source for name in carried.names)
        how = ", ".join(f"`{name} = {name}.detach()`" for name in carried.names if named) or "call `.detach()` on it"
        return [
            Fix(
                f"Detach it where it is carried over: {how} before it is used again{line}.",
                Applicability.DISPLAY_ONLY,
                meaning="Gradients then stop there.",
            ),
        ] + ([_ONE_BACKWARD] if carried.used_by == "add" else [])
    if freed.freed_by_another and freed.first is not None:
        return [Fix(f"Pass `retain_graph=True` to `{short(freed.first.source)}`, which goes through the graph in between.", Applicability.DISPLAY_ONLY)]
    if freed.same_root:
        return [
            Fix("Run the forward pass again before the second `backward()`, or remove the second call.", Applicability.DISPLAY_ONLY),
            Fix(
                "If both calls are wanted, pass `retain_graph=True` to the first.",
                Applicability.DISPLAY_ONLY,
                meaning="Gradients of both calls then add up.",
            ),
        ]
    return [
        Fix("Add the losses and call `backward()` once: `(loss1 + loss2).backward()`.", Applicability.DISPLAY_ONLY),
        Fix(
            "Or recompute the shared part for the second loss, or pass `retain_graph=True` to the first `backward()`.",
            Applicability.DISPLAY_ONLY,
        ),
    ]
