"""Frozen parts, and BatchNorm layers, that the program has put in eval mode, and that `train()` of the whole model has put back in train mode."""

from __future__ import annotations

from torch import nn

from torchsleuth.auditor.laboratory.runner import BATCH_NORMS
from torchsleuth.auditor.observation_training import ModeFact
from torchsleuth.auditor.program.captured import mode_dependent
from torchsleuth.auditor.program.later import ModeNotes


def undone(model: nn.Module, notes: ModeNotes) -> ModeFact | None:
    """In a step: `eval()` was the last thing that the program did to the mode of a part that is not to learn, and the part is in train mode."""
    for path, module in model.named_modules():
        was, site = notes.last.get(id(module), (None, None))
        mine = list(module.parameters())
        if not path or was is not False or site is None or site.library or not module.training or not mine or (any(p.requires_grad for p in mine) and not isinstance(module, BATCH_NORMS)):
            continue
        above = [model, *(model.get_submodule(path[:at]) for at, letter in enumerate(path) if letter == ".")]
        by = next((where for one in above for mode, where in [notes.last.get(id(one), (None, None))] if mode is True), None)
        layers = (path,) if isinstance(module, BATCH_NORMS) else tuple(f"{path}.{name}" for name in mode_dependent(module))
        if layers and by is not None and not by.library:
            return ModeFact("eval-undone", layers[:4], by, changed=site, operation=path)
    return None
