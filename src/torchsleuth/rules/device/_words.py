"""What the device rules share: the last watched calls in words, and the command that settles the rest."""

from __future__ import annotations

from torchsleuth.evidence_device import AssertText, DeviceDeath, Watched
from torchsleuth.evidence_forward import shortened
from torchsleuth.model import Fact, Known
from torchsleuth.rules.forward._words import users

SETTLE = (
    "Run it again with `torchsleuth run --guard`: it checks every index on the host before the GPU uses it, waits for each kernel, "
    "compiles nothing, and stops at the line itself (slow)."
)

_VERDICTS = {
    "fine": "its values were in range",
    "not reached": "queued, and not reached before the GPU stopped",
    "not copied": "its values could not be copied",
    "bad": "its values break the range",
}


def calls_facts(device: DeviceDeath, most: int = 4) -> list[Fact]:
    """The last watched calls, each line once."""
    found, seen = [], set()
    for call in device.calls:
        place = users(call.place) or call.place
        key = (place.span.file, place.span.line, call.verdict)
        if key in seen:
            continue
        seen.add(key)
        found.append(Fact(f"{_which(call)} at {place.span.file}:{place.span.line}, `{shortened(place.source, 40)}`: {_verdict(call)}.", Known.OBSERVED))
        if len(found) == most:
            break
    return found


def _which(call: Watched) -> str:
    return {"__getitem__": "indexing", "__setitem__": "indexed assignment"}.get(call.operation, f"`{call.operation}`")


def _verdict(call: Watched) -> str:
    detail = f" ({call.detail})" if call.detail else ""
    return f"{_VERDICTS.get(call.verdict, call.verdict)}{detail}"


def watching_facts(device: DeviceDeath) -> list[Fact]:
    found = []
    if device.watching:
        found.append(Fact(f"Operations on the GPU were not watched: {device.watching}.", Known.OBSERVED))
    if device.in_graphs:
        found.append(Fact("Operations captured in a CUDA graph are not watched.", Known.OBSERVED))
    return found


def printed_fact(text: AssertText) -> Fact:
    where = "code that torch.compile wrote" if text.file.endswith(".py") else f"{text.file}:{text.line}, {text.kernel}"
    threads = f", {text.threads} threads" if text.threads > 1 else ""
    return Fact(f"The GPU printed: assertion `{text.assertion}` failed ({where}{threads}).", Known.OBSERVED)


def noticed_fact(device: DeviceDeath) -> list[Fact]:
    place = device.noticed and (users(device.noticed) or device.noticed)
    if place is None or device.blocking:
        return []
    return [Fact(
        f"The traceback ends at {place.span.file}:{place.span.line}, `{shortened(place.source)}`: there the program first noticed that the GPU "
        "had stopped; the kernel that failed may be any that was queued before.", Known.OBSERVED,
    )]  # fmt: skip
