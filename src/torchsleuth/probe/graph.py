"""The autograd graph: walking it, and asking its nodes what they saved."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

MOST_NODES = 400_000
LEAF_SEQUENCE = 1 << 62  # AccumulateGrad nodes carry the highest number there is

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_STALE = "modified by an inplace operation"
_FREED = "after they have already been freed"


def walk(roots: Iterable[typing.Any], most: int = MOST_NODES) -> Iterator[typing.Any]:
    """Every node reachable from these grad_fns, each once."""
    pending = [node for node in roots if node is not None]
    seen = {id(node) for node in pending}
    kept = list(pending)  # a node's Python wrapper must live while its id is in `seen`
    while pending and len(kept) <= most:
        node = pending.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and id(following) not in seen:
                seen.add(id(following))
                kept.append(following)
                pending.append(following)


def sequence_of(node: typing.Any) -> int:
    number = node._sequence_nr()
    return number if 0 <= number < LEAF_SEQUENCE else LEAF_SEQUENCE


def operation_of(node_name: str) -> str:
    """`NativeLayerNormBackward0` → `native_layer_norm`."""
    base = re.sub(r"Backward\d*$", "", node_name)
    base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base)
    return base.lower()


@dataclass(frozen=True, slots=True)
class Saved:
    """One saved tensor of a node. `tensor` is the live one behind it, read without unpacking."""

    name: str
    state: str  # "fresh", "stale", "freed"
    version_now: int = 0
    version_saved: int = 0
    message: str = ""
    tensor: torch.Tensor | None = None


_slots_of_type: dict[tuple[type, str], tuple[str, ...]] = {}


def _slots(node: typing.Any) -> tuple[str, ...]:
    key = (type(node), node.name())
    found = _slots_of_type.get(key)
    if found is None:
        found = tuple(name[len("_raw_saved_") :] for name in dir(node) if name.startswith("_raw_saved_"))
        _slots_of_type[key] = found
    return found


def saved_tensors(node: typing.Any) -> Iterator[Saved]:
    """What a node saved and in which state. Hooks that a program has put on saved tensors are not run."""
    for slot in _slots(node):
        try:
            raw = getattr(node, f"_raw_saved_{slot}")
        except RuntimeError as error:
            yield Saved(slot, "freed" if _FREED in str(error) else "fresh", message=str(error))
            continue
        several = isinstance(raw, (list, tuple))
        for position, item in enumerate(raw if several else (raw,)):
            name = f"{slot}[{position}]" if several and len(raw) > 1 else slot
            if getattr(item, "unpack_hook", None) is not None:
                continue  # unpacking would run the program's hook, and torch checks no version there
            # `_saved_result` knows which node asks; a bare `unpack()` of a node's own result does not.
            yield _state(name, item, item.unpack if several else functools.partial(getattr, node, f"_saved_{slot}"))


def _state(name: str, raw: typing.Any, unpack: typing.Callable[[], object]) -> Saved:
    try:
        unpack()
    except AttributeError:
        return Saved(name, "fresh")
    except RuntimeError as error:
        message = str(error)
        if _FREED in message:
            return Saved(name, "freed", message=message)
        versions = _VERSIONS.search(message)
        if _STALE not in message or versions is None:
            return Saved(name, "fresh", message=message)
        return Saved(name, "stale", int(versions[1]), int(versions[2]), message, _raw_data(raw))
    return Saved(name, "fresh")


def _raw_data(raw: typing.Any) -> torch.Tensor | None:
    try:
        data = raw.data
    except Exception:
        return None
    return data if isinstance(data, torch.Tensor) else None


def is_freed(node: typing.Any) -> bool:
    return any(saved.state == "freed" for saved in saved_tensors(node))
