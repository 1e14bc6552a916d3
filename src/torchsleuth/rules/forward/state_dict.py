"""A checkpoint that does not fit the model."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import KeyMismatch, RefusedState
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._words import made_words, shape, users
from torchsleuth.wording import short

_WRAPPERS = {"module.": "`DataParallel` and `DistributedDataParallel` add", "_orig_mod.": "`torch.compile` adds"}
_SHOWN = 4


class StateDict(CrashRule):
    """The names or shapes in a checkpoint are not those of the model it is loaded into.

    What happened
    -------------
    `load_state_dict` copies each tensor of the dictionary into the parameter of the same name. A name is missing or left
    over, or a shape is another one.

    Why
    ---
    Typical: the model was built with other numbers than the one that was saved (classes, vocabulary, width); a wrapper
    added a prefix to every name (`module.` by DataParallel, `_orig_mod.` by torch.compile); the whole checkpoint was
    passed, with epoch and optimizer in it, and not the weights inside of it.

    Example
    -------
    This raises "size mismatch for weight":

        import torch

        saved = torch.nn.Linear(8, 1000).state_dict()
        torch.nn.Linear(8, 10).load_state_dict(saved)

    Fix
    ---
    Build the model with the numbers of the saved one. To fine-tune with another last layer, load first and replace the
    layer then. Strip a prefix from the keys: `{key.removeprefix("module."): value for key, value in state.items()}`.

    Common false explanations
    -------------------------
    "Pass `strict=False`." That silences names that are missing or left over: those parameters keep their random values.
    Wrong shapes it does not accept. This raises "size mismatch":

        import torch

        saved = torch.nn.Linear(8, 1000).state_dict()
        torch.nn.Linear(8, 10).load_state_dict(saved, strict=False)
    """

    name = "state-dict"
    messages = (r"Error\(s\) in loading state_dict for",)
    needs = ("refused_state",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.refused_state
        if found is None or not (found.mismatches or found.missing or found.unexpected):
            return None
        culprits = Culprits()
        place = users(found.place) or found.place
        culprits.add(place, Role.OPERAND, _label(found))
        for item in found.mismatches[:_SHOWN]:
            culprits.create(item.made, f"makes `{item.key}` {shape(item.model)}")
            culprits.create(item.saved_made, f"`{item.key}` {shape(item.saved)} of the dictionary comes from here")
        if not found.nested and not prefix_of(found)[0]:
            culprits.create(found.module_made, "the model is made here")
        return Diagnosis(self.name, _title(found), Confidence.CERTAIN, culprits.done(), tuple(_facts(found)), _why(found), tuple(_fixes(found)))


def prefix_of(found: RefusedState) -> tuple[str, str]:
    """The prefix by which all names differ, and the side that has it ("checkpoint" or "model"); "" where that is not so."""
    if not found.missing or len(found.missing) != len(found.unexpected):
        return "", ""
    for side, with_it, without in (("checkpoint", found.unexpected, found.missing), ("model", found.missing, found.unexpected)):
        prefix = with_it[0][: -len(without[0])] if with_it[0].endswith(without[0]) else ""
        if prefix.endswith(".") and set(with_it) == {prefix + key for key in without}:
            return prefix, side
    return "", ""


def is_transposed(item: KeyMismatch) -> bool:
    return len(item.saved) == 2 and item.saved == item.model[::-1]


def _called(found: RefusedState) -> str:
    return f"`{found.module}`" if found.module else f"the {found.kind}"


def _title(found: RefusedState) -> str:
    prefix, side = prefix_of(found)
    if prefix:
        return f"All names in the {side} have the prefix `{prefix}`, and those in the {'model' if side == 'checkpoint' else 'checkpoint'} have not"
    if found.nested:
        return f"The weights are one level deeper in what was loaded, under {found.nested!r}"
    if found.mismatches:
        item = found.mismatches[0]
        more = f", and {len(found.mismatches) - 1} more" if len(found.mismatches) > 1 else ""
        return f"`{item.key}` has shape {shape(item.saved)} in the checkpoint and {shape(item.model)} in {_called(found)}{more}"
    if found.missing and found.unexpected:
        return f"The checkpoint lacks {_count(found.missing)} of {_called(found)} and holds {_count(found.unexpected)} that it does not have"
    if found.missing:
        return f"The checkpoint lacks {_count(found.missing)} of {_called(found)}: {_listed(found.missing)}"
    return f"The checkpoint holds {_count(found.unexpected)} that {_called(found)} does not have: {_listed(found.unexpected)}"


def _count(keys: tuple[str, ...]) -> str:
    return f"{len(keys)} entr{'y' if len(keys) == 1 else 'ies'}"


def _listed(keys: tuple[str, ...]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(f"`{key}`" for key in keys[:_SHOWN]) + more


def _label(found: RefusedState) -> str:
    if prefix_of(found)[0]:
        return f"names differ by `{prefix_of(found)[0]}`"
    if found.nested:
        return f"the weights are under {found.nested!r}"
    if found.mismatches:
        return f"{shape(found.mismatches[0].saved)} does not fit into {shape(found.mismatches[0].model)}"
    return "names do not match"


def _facts(found: RefusedState) -> list[Fact]:
    facts = []
    for item in found.mismatches[:_SHOWN]:
        by = made_words(item.made)
        facts.append(Fact(f"`{item.key}`: {shape(item.saved)} in the checkpoint, {shape(item.model)} in the model{f', made by {by}' if by else ''}.", Known.OBSERVED))
    if len(found.mismatches) > _SHOWN:
        facts.append(Fact(f"… and {len(found.mismatches) - _SHOWN} more shapes.", Known.OBSERVED))
    if found.missing:
        facts.append(Fact(f"In the model and not in the checkpoint: {_listed(found.missing)}.", Known.OBSERVED))
    if found.unexpected:
        facts.append(Fact(f"In the checkpoint and not in the model: {_listed(found.unexpected)}.", Known.OBSERVED))
    facts.append(Fact(f"The checkpoint has {found.keys} {'entry' if found.keys == 1 else 'entries'}.", Known.OBSERVED))
    return facts


def _why(found: RefusedState) -> str:
    start = "`load_state_dict` copies by name, into a parameter of the same shape. "
    prefix, side = prefix_of(found)
    if prefix:
        who = _WRAPPERS.get(prefix)
        return start + (f"The prefix is what {who} to every name. " if who else "") + f"Without it the names are the same on both sides; the {side} has it."
    if found.nested:
        return start + f"What was loaded is a dictionary with other things in it too; the weights are its entry {found.nested!r}."
    if found.mismatches:
        return start + _difference(found.mismatches[0])
    return start + "The model that was saved had other layers, or layers under other names."


def _difference(item: KeyMismatch) -> str:
    if len(item.saved) != len(item.model):
        return "The saved model had another kind of layer there."
    if is_transposed(item):
        return f"`{item.key}` has the sizes in the other order: its dimensions are swapped. torch keeps the weight of a linear layer as [outputs, inputs]."
    axes = [axis for axis, (one, other) in enumerate(zip(item.saved, item.model)) if one != other]
    sizes = ", ".join(f"{item.saved[axis]} against {item.model[axis]} at dimension {axis}" for axis in axes)
    return f"The dictionary was made for other numbers: {sizes}." if item.saved_made is not None else f"The saved model was built with other numbers: {sizes}."


def _fixes(found: RefusedState) -> list[Fix]:
    prefix, side = prefix_of(found)
    if prefix and side == "checkpoint":
        return [Fix(f"Strip it: `{{key.removeprefix({prefix!r}): value for key, value in state.items()}}`.", Applicability.DISPLAY_ONLY)]
    if prefix:
        return [Fix(f"Load into the inner module: `{short(found.module or 'model')}.{prefix.rstrip('.')}.load_state_dict(...)`.", Applicability.DISPLAY_ONLY)]
    if found.nested:
        return [Fix(f"Pass the entry {found.nested!r} of it.", Applicability.DISPLAY_ONLY)]
    if found.mismatches and all(is_transposed(item) for item in found.mismatches):
        return [Fix("Swap the dimensions of these entries where the dictionary is made: `weight.t()`.", Applicability.DISPLAY_ONLY)]
    if found.mismatches:
        return [
            Fix("Build the model with the numbers of the saved one.", Applicability.DISPLAY_ONLY),
            Fix(
                "To train another last layer: build as saved, load, and replace the layer then; or leave these keys out of the dictionary and pass `strict=False`.",
                Applicability.DISPLAY_ONLY,
            ),
        ]
    return [Fix("Build the same model as the one that was saved. `strict=False` loads what fits and leaves the rest as it is.", Applicability.DISPLAY_ONLY)]
