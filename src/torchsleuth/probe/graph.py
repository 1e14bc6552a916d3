"""The autograd graph: walking it, and asking its nodes what they saved."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Iterable, Iterator

import torch

from torchsleuth import env
from torchsleuth.frozen import frozen

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
    """`NativeLayerNormBackward0` → `native_layer_norm`, `torch::autograd::CopySlices` → `copy_slices`; a Function of the program's
    own keeps its name: `SwishBackward` → `Swish`."""
    if node_name.endswith("Backward") and "::" not in node_name:
        return node_name.removesuffix("Backward")
    base = re.sub(r"Backward\d*$", "", node_name.rpartition("::")[2])
    base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base)
    return base.lower()


@frozen
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
        if not isinstance(raw, (list, tuple)):
            if not _has_hook(raw):
                # `_saved_result` knows which node asks; a bare `unpack()` of a node's own result does not.
                yield _state(slot, raw, functools.partial(getattr, node, f"_saved_{slot}"))
        elif env.saved_tensors_can_be_unpacked_one_by_one():
            yield from _states_of_items(node, slot, raw)
        elif not any(map(_has_hook, raw)):
            yield _state_of_list(node, slot, raw)


def kept_tensors(node: typing.Any) -> Iterator[torch.Tensor]:
    """The tensors a node holds for backward, read without unpacking them: whether they are still right does not matter."""
    for slot in _slots(node):
        try:
            raw = getattr(node, f"_raw_saved_{slot}")
        except RuntimeError:
            continue
        for item in raw if isinstance(raw, (list, tuple)) else (raw,):
            tensor = _raw_data(item)
            if tensor is not None:
                yield tensor


def hooks_of(node: typing.Any) -> Iterator[typing.Any]:
    """The functions that a node's saved tensors have to go through before they are used (a checkpoint's, for one)."""
    for slot in _slots(node):
        try:
            raw = getattr(node, f"_raw_saved_{slot}")
        except RuntimeError:
            continue
        for item in raw if isinstance(raw, (list, tuple)) else (raw,):
            if getattr(item, "unpack_hook", None) is not None:
                yield item.unpack_hook


def states_of(name: str, raws: typing.Sequence[typing.Any]) -> Iterator[Saved]:
    """Of saved tensors that no node holds. Hooks that a program has put on them are not run."""
    for raw in raws:
        if not _has_hook(raw):
            yield _state(name, raw, raw.unpack)


def _has_hook(raw: typing.Any) -> bool:
    """Unpacking would run the program's hook, and torch checks no version there. (Where torch does not tell, it is run.)"""
    return env.saved_tensors_show_their_data() and getattr(raw, "unpack_hook", None) is not None


def _states_of_items(node: typing.Any, slot: str, raws: typing.Sequence[typing.Any]) -> Iterator[Saved]:
    """Each item for itself. One that the node returned cannot be unpacked alone once it was written into ("has been detached
    in-place": it has another grad_fn then); the node's whole list can, and its message says that it is an output."""
    outputs = []
    for position, item in enumerate(raws):
        if not _has_hook(item):
            found = _state(f"{slot}[{position}]" if len(raws) > 1 else slot, item, item.unpack)
            if found.state == "fresh" and found.message:
                outputs.append(item)
            yield found
    if outputs and not any(map(_has_hook, raws)):
        whole = _state_of_list(node, slot, outputs)
        if whole.state == "stale" and whole.tensor is not None and f" of {node.name().removesuffix('Backward')}," in whole.message:
            yield dataclasses.replace(whole, name="result")


def _state_of_list(node: typing.Any, slot: str, raws: typing.Sequence[typing.Any]) -> Saved:
    """The list unpacks or fails as a whole; the version in the message tells which item it was."""
    attribute = "saved_tensors" if slot == "tensors" else f"_saved_{slot}"
    state = _state(slot, None, functools.partial(getattr, node, attribute))
    if state.state != "stale" or state.tensor is not None:
        return state

    def is_meant(tensor: torch.Tensor | None) -> bool:
        return tensor is not None and tensor._version == state.version_now and f"{list(tensor.shape)}]" in state.message

    for raw in raws:
        tensor = _raw_data(raw) if env.saved_tensors_show_their_data() else _handed_over(raw, RuntimeError(state.message), is_meant)
        if is_meant(tensor):
            return dataclasses.replace(state, tensor=tensor)
    return state


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
        tensor = _raw_data(raw) if env.saved_tensors_show_their_data() else _handed_over(raw, error)
        return Saved(name, "stale", int(versions[1]), int(versions[2]), message, tensor)
    return Saved(name, "fresh")


def _raw_data(raw: typing.Any) -> torch.Tensor | None:
    try:
        data = raw.data
    except Exception:
        return None
    return data if isinstance(data, torch.Tensor) else None


def _handed_over(
    raw: typing.Any, refusal: RuntimeError, is_overwritten: typing.Callable[[torch.Tensor], bool] = lambda tensor: True
) -> torch.Tensor | None:
    """The tensor behind a save, where torch does not show it: a pack hook is given it. From then on unpacking runs the hook's
    other half; of an overwritten tensor it refuses in the same words as torch did, and has the tensor for who asks again."""
    known = getattr(refusal, "saved", None)
    if known is not None or raw is None:
        return known
    packed: list[torch.Tensor] = []
    words = str(refusal)  # the exception itself has frames, which would live as long as the hook

    def unpack(_: object) -> torch.Tensor:
        if not is_overwritten(packed[0]):
            return packed[0]
        again = RuntimeError(words)
        again.saved = packed[0]  # type: ignore[attr-defined]
        raise again

    try:
        raw.register_hooks(packed.append, unpack)
    except RuntimeError:  # it has hooks of the program's
        return None
    return packed[0]


def is_freed(node: typing.Any) -> bool:
    return any(saved.state == "freed" for saved in saved_tensors(node))
