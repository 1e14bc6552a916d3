"""A tensor that backward needs was overwritten."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence, StaleSave, WriteSite
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first

_MOST_SAVES = 4
_MOST_WRITES = 4
_MOST_ELSEWHERE = 2


class InplaceSavedTensor(CrashRule):
    """A tensor that an operation had saved for backward was overwritten before backward ran.

    What happened
    -------------
    Many operations keep ("save") one of their inputs or their result, because the formula of their derivative needs
    its values. Later an in-place operation wrote into that same tensor. `backward()` noticed that the values it needs
    are gone, and refused to compute a wrong gradient.

    Why
    ---
    Every tensor has a version counter that counts writes into its memory; views share it with their base. A saved
    tensor remembers the version it had. The derivative of `x ** 2` is `2 * x`, so `pow` saves `x`; `exp` saves its
    result; `x + 1` saves nothing. So writing into `x` is fine after `x + 1` and fatal after `x ** 2`. The counter does
    not know *which* elements were written: a write into one column invalidates a saved view of another one.
    Typical writers: `x += y`, `x[i] = v`, `relu_()` or `inplace=True`, `optimizer.step()` between two backward calls, a
    buffer updated in `forward`, a recurrent state updated in place. `torch.no_grad()` does not help: the write counts.

    Example
    -------
    This raises "modified by an inplace operation":

        import torch

        x = torch.ones(3, requires_grad=True)
        h = x * 2
        y = h ** 2     # saved h
        h += 1         # wrote into h
        y.sum().backward()

    Fix
    ---
    Write into a new tensor (`h = h + 1`), or give the saving operation or the writer its own copy (`h.clone()`), or
    do the write after backward (`optimizer.step()` after the last `backward()` through the old weights).

    Common false explanations
    -------------------------
    "Writing into elements of a tensor bypasses the graph." It does not: the write is recorded, and where nobody saved
    the old value the gradient is right. This runs and prints the right gradient:

        import torch

        x = torch.ones(3, requires_grad=True)
        h = x * 2
        h[0] = 0.0     # nothing saved h: this is fine
        h.sum().backward()
        print(x.grad)

    "`retain_graph=True` helps." It does not: it keeps buffers from being freed, not from being overwritten. This raises
    "modified by an inplace operation":

        import torch

        x = torch.ones(3, requires_grad=True)
        h = x * 2
        y = h ** 2
        h += 1
        y.sum().backward(retain_graph=True)

    "`clone()` first, then you may do anything." Only if the clone is what you write into, or what was saved. This raises
    "modified by an inplace operation":

        import torch

        x = torch.ones(3, requires_grad=True)
        h = x.clone()
        y = h ** 2     # saved the clone
        h += 1         # and this writes into it
        y.sum().backward()
    """

    name = "inplace-saved-tensor"
    messages = (r"modified by an inplace operation",)
    needs = ("stale",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        failing = next((save for save in evidence.stale if save.failing), None)
        if failing is None:
            return None
        related = [save for save in evidence.stale if save.storage == failing.storage]
        others = len({save.storage for save in evidence.stale} - {failing.storage})
        write = failing.writes[0] if failing.writes else None
        seen = failing.complete and all(site.place.known is not Known.INFERRED for site in failing.writes)
        confidence = Confidence.CERTAIN if seen else Confidence.LIKELY if write else Confidence.POSSIBLE
        return Diagnosis(
            self.name,
            _title(failing),
            confidence,
            tuple(_culprits(failing, related, _elsewhere(failing, evidence.stale))),
            tuple(_facts(failing, others)),
            _explanation(failing, write),
            tuple(_fixes(failing, write)),
        )


def _title(save: StaleSave) -> str:
    tensor = _called(save)
    if save.is_result and not save.tensor.name and tensor != save.tensor.called:
        return f"{upper_first(tensor)}, which its backward needs, was overwritten"
    if _is_beside(save) and save.place is not None and save.place.source:
        return f"Memory that {tensor} is a part of was written into after `{short(save.place.source)}` had saved it for backward"
    if save.place is None or not save.place.source:
        return f"{upper_first(tensor)} was overwritten after `{save.operation}` had saved it for backward"
    return f"{upper_first(tensor)} was overwritten after `{short(save.place.source)}` had saved it for backward"



def _elsewhere(failing: StaleSave, stale: tuple[StaleSave, ...]) -> list[StaleSave]:
    """Saves of other memory that other lines have overwritten: backward stops at the first, and would at these next."""
    found: list[StaleSave] = []
    shown = {site.place.span for save in stale if save.storage == failing.storage for site in save.writes}
    for save in stale:
        if save.storage == failing.storage or not save.complete or save.place is None or save.place.in_library:
            continue
        spans = {site.place.span for site in save.writes}
        if not spans & shown and not any(site.place.in_library for site in save.writes):
            found.append(save)
            shown |= spans
    return found[:_MOST_ELSEWHERE]


def _culprits(failing: StaleSave, related: list[StaleSave], elsewhere: list[StaleSave]) -> list[Culprit]:
    found: list[Culprit] = []
    sites = failing.writes[:_MOST_WRITES]
    for site in sites:
        if site.place.via is not None:
            found.append(site.place.via.culprit(Role.CALL, "your call, in which the library writes"))
        found += _writing(failing, site)
    written = {site.place.span for site in sites}
    for save in related if sites else ():  # earlier writes, over what other operations had saved of the same memory
        for site in save.writes[: _MOST_WRITES - len(written)]:
            if site.place.span not in written:
                written.add(site.place.span)
                found += _writing(save, site)
    if not sites:
        for site in failing.candidates[:_MOST_WRITES]:
            found.append(site.place.culprit(Role.MUTATE, f"may have written into {failing.tensor.called}"))
    seen = set()
    for save in related:
        if save.place is None or save.place.span in seen or len(seen) >= _MOST_SAVES:
            continue
        seen.add(save.place.span)
        if save.place.via is not None and save.failing:
            found.append(save.place.via.culprit(Role.CALL, "your call, in which the library saves it"))
        found.append(save.place.culprit(Role.SAVE, _save_label(save)))
        if save.kept is not None:
            found.append(save.kept.culprit(Role.SAVE, "where its forward keeps it"))
    for item in failing.carried:
        name = " and ".join(f"`{name}`" for name in item.names) or f"a tensor of shape {item.tensor.size}"
        made, used = (place.via or place if place is not None else None for place in (item.made, item.used))
        if item.kept is not None:
            found.append(item.kept.culprit(Role.CREATE, f"keeps {name} for the next round, graph and all"))
        if used is not None and made is not None and used.span == made.span:
            found.append(used.culprit(Role.CREATE, f"builds on {name} of before that write, with the old graph"))
        else:
            found += [used.culprit(Role.OPERAND, f"uses {name}, made before that write")] if used is not None else []
            found += [made.culprit(Role.CREATE, f"made {name}")] if made is not None else []
    for save in elsewhere:
        found += [culprit for site in save.writes[:_MOST_WRITES] for culprit in _writing(save, site)]
        found.append(save.place.culprit(Role.SAVE, _save_label(save)))
    return found


def _writing(save: StaleSave, site: WriteSite) -> list[Culprit]:
    found = [site.place.culprit(Role.MUTATE, _write_label(save, site))]
    if site.made is not None:
        found.append(site.made.culprit(Role.CREATE, f"made `{site.module}`, which writes in place"))
    return found


def _write_label(save: StaleSave, site: WriteSite) -> str:
    often = "" if site.times == 1 else f" {site.times} times"
    versions = ""
    if site.first_version is not None and site.last_version is not None:
        versions = f": version {site.first_version} -> {site.last_version}"
    elif site.place.known is Known.OBSERVED:
        versions = f", now at version {save.version_now}"
    writer = f"`{site.module}` in it " if site.module and not site.place.source.startswith(f"{site.module}(") else ""
    where = "beside" if site.overlaps is False else "into"
    return f"{writer}wrote {where} {_as_written(save, site)}{often}{versions}"


def _as_written(save: StaleSave, site: WriteSite) -> str:
    """In another function than the one that saved it, the tensor's name may be another variable's."""
    name, place = save.tensor.name, save.place
    elsewhere = place is not None and (place.span.file, place.function) != (site.place.span.file, site.place.function)
    if elsewhere and name.isidentifier() and save.named_in != site.place.function and not re.search(rf"\b{name}\b", site.place.source):
        return f"the saved `{name}`"
    return save.tensor.called if save.named_in == site.place.function else _called(save)


def _called(save: StaleSave) -> str:
    if save.is_result and not save.tensor.name and not save.tensor.view_of and save.place is not None and save.place.source:
        return f"the result of {_through(save)}"
    return f"{save.tensor.called} of `{save.named_in}`" if save.named_in and save.named_in != "<module>" else save.tensor.called


def _through(save: StaleSave) -> str:
    """The saving expression; of a module or function of which it is but a part, that part: the `relu` in `net(x)`."""
    if save.place is None or not save.place.source:
        return f"`{save.operation}`"
    name = _called_last(save.place.source)
    part = save.is_result and name and name.replace("_", "") != save.operation.strip("_").replace("_", "")
    return f"`{save.operation}` in `{short(save.place.source)}`" if part else f"`{short(save.place.source)}`"


def _called_last(source: str) -> str:
    """`exp` of `net(x).exp()`, `net` of `net(x)`; "" where it is no call."""
    try:
        call = ast.parse(source, mode="eval").body
    except SyntaxError:
        return ""
    function = call.func if isinstance(call, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    return name.strip("_").lower()


def _save_label(save: StaleSave) -> str:
    what = "its result" if save.is_result else "it"
    kept = f"saved {what}" if save.is_result else f"saved {_called(save)}"
    size = f" {save.tensor.size}" if save.is_result or save.tensor.name or save.tensor.view_of else ""  # else it is called by it
    return f"`{save.operation}` {kept}{size} at version {save.version_saved}"


def _facts(save: StaleSave, others: int) -> list[Fact]:
    kind = f" ({save.tensor.kind})" if save.tensor.kind in ("parameter", "buffer") else ""
    facts = [
        Fact(
            f"{upper_first(_called(save))}{kind} has shape {save.tensor.size}, dtype {save.tensor.dtype}; `{save.node}` saved it at "
            f"version {save.version_saved}, and it is at version {save.version_now} now.",
            Known.OBSERVED,
        )
    ]
    steps = save.version_now - save.version_saved
    if save.writes:
        counted = sum(site.times for site in save.writes)
        if save.complete and counted != 1:
            facts.append(Fact(f"It was written {counted} times in between, by the line(s) above.", Known.OBSERVED))
        if _is_beside(save):
            facts.append(
                Fact(
                    "The written region does not overlap the saved one: they are views of one base.",
                    Known.OBSERVED,
                )
            )
        if any(site.grad_enabled is False for site in save.writes):
            facts.append(Fact("The write was made under no_grad; the version counter counts it all the same.", Known.OBSERVED))
        if not save.complete:
            facts.append(_doubt(save, steps))
    else:
        facts.append(_doubt(save, steps))
    if save.untrained:
        facts.append(Fact(f"No optimizer in sight holds {save.tensor.called}, or anything else that {_through(save)} was computed from.", Known.OBSERVED))
    if others:
        facts.append(
            Fact(f"{others} more saved tensor(s) of this graph were overwritten too; backward stopped at this one.", Known.OBSERVED)
        )
    return facts


def _is_beside(save: StaleSave) -> bool:
    """Every write is known, and each went beside what was saved."""
    return save.complete and bool(save.writes) and all(site.overlaps is False for site in save.writes)


def _doubt(save: StaleSave, steps: int) -> Fact:
    seen = sum(site.steps or site.times for site in save.writes if site.place.known is Known.OBSERVED)
    lines = ", ".join(f"line {site.place.span.line}" for site in save.candidates[:5])
    text = f"{steps} write(s) lie between save and backward; {seen} of them were seen as they happened."
    if lines:
        text += f" Lines that ran since and whose syntax writes into memory of this tensor: {lines}."
    return Fact(text + " `torchsleuth run --deep` logs every write and settles it.", Known.INFERRED)


def _explanation(save: StaleSave, write: WriteSite | None) -> str:
    source = _through(save)
    if save.is_result:
        kept = f"so {save.tensor.called}" if _called(save) == save.tensor.called else "which"
        text = f"Backward through {source} is computed from its own result, {kept} was kept for it, uncopied. "
    elif save.node == "checkpoint":
        text = f"Backward runs the function of {source} again, and needs the values of {_called(save)} for that, so they were kept for it, uncopied. "
    else:
        text = f"Backward through {source} needs the values of {_called(save)}, so they were kept for it, uncopied. "
    if write is None:
        text += "Something then replaced the values in the same memory, so those that backward needs are gone."
    elif _is_step(write):
        text += f"`{short(write.place.source)}` then updated the weights in place, so the values that backward needs are gone."
    else:
        subject = f"The assignment to `{short(write.place.source)}`" if _is_target(write) else f"`{short(write.place.source)}`"
        subject = f"`{write.module}`, {_a(write.module_class)} with `inplace=True`," if write.module else subject
        if _is_beside(save):
            return (
                f"{text}{subject} then wrote into another part of the same memory. The values that backward needs are still there, but all views of "
                "one base share one version counter with it: PyTorch sees that something was written, not where, and refuses."
            )
        text += f"{subject} then replaced values in the same memory, so those that backward needs are gone."
    if save.carried:
        names = " and ".join(f"`{name}`" for item in save.carried[:1] for name in item.names) or "a tensor"
        text += f" The loss was computed after that, but from {names}, which was made before and brought the old graph along."
    return text + " PyTorch refuses to compute a gradient from the wrong values."


def _is_target(write: WriteSite) -> bool:
    """`x[i]` of `x[i] = 1`; all of `x[i] += 1` and `x[i].add_(1)` is more than what is assigned to."""
    return write.operation in ("__setitem__", "copy_slices") and bool(re.search(r"[\]\w]$", write.place.source)) and "= " not in write.place.source


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'AEIOU' else 'a'} `{noun}`"


def _is_step(write: WriteSite) -> bool:
    return bool(re.search(r"\.step\(", write.place.source))


def _fixes(save: StaleSave, write: WriteSite | None) -> list[Fix]:
    advice: list[tuple[str, str]] = []
    if save.carried and write is not None and _is_step(write):
        names = " and ".join(f"`{name}`" for item in save.carried[:1] for name in item.names) or "what is carried over"
        advice.append((f"Detach {names} where it is kept for later, so that it brings no old graph along.", "Gradients then stop there."))
    elif write is None:
        advice.append(("Make the write out of place, or save a copy: `.clone()` where the tensor is saved.", ""))
    elif _is_step(write):
        advice.append(
            (
                f"Call `{short(write.place.source)}` after the last `backward()` that goes through the old weights, "
                "or run the forward pass again after it.",
                "Recomputing the forward uses the updated weights, which is what alternating (GAN-style) training means.",
            )
        )
    elif save.untrained and save.place is not None and not save.is_result:
        advice.append((f"Compute `{short(save.place.source)}` under `torch.no_grad()`, as is usual for a target that follows another network.", "No gradient goes there then."))
    elif save.tensor.kind == "parameter":
        advice.append((f"Move `{short(write.place.source)}` after the `backward()` that still needs the old weights.", ""))
    else:
        advice.append((_out_of_place(write), ""))
        if save.place is not None and not save.is_result and save.tensor.kind == "variable" and not save.place.in_library:
            advice.append((f"Or let `{short(save.place.source)}` work on a copy: `{save.tensor.name}.clone()` there.", ""))
    return [Fix(title, Applicability.DISPLAY_ONLY, meaning=meaning) for title, meaning in advice]


def _out_of_place(write: WriteSite) -> str:
    source = short(write.place.source)
    augmented = re.fullmatch(r"(\S+) (\S{1,2})= (.+)", source)
    if augmented:
        target, operator, value = augmented.groups()
        return f"Write into a new tensor: `{target} = {target} {operator} {value}` instead of `{source}`."
    if write.operation == "__setitem__":
        return (
            f"Build a new tensor instead of assigning to `{source}`: collect the pieces in a list and `torch.stack` them, "
            "use `torch.where`, or assign into a fresh `clone()` that nothing has saved."
        )
    method = re.search(r"\.(\w+?)_\(", source)
    if method:
        return f"Use the out-of-place `{method[1]}` and bind its result, instead of `{source}`."
    return f"Make `{source}` work out of place (`inplace=False`), or give it a `clone()`."
