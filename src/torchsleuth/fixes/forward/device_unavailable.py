"""A device that is not here: it is chosen while the program runs, and checkpoints are brought to the CPU."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, Place
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.forward.device_unavailable import asked_device, device_of

_AVAILABLE = {"cuda": "cuda.is_available()", "mps": "backends.mps.is_available()", "xpu": "xpu.is_available()"}


class DeviceUnavailableFixer(Fixer):
    rule = "device-unavailable"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        if failed.operation is None:
            return []
        asked = asked_device(failed.operation)
        if asked is not None:
            made = asked.made.place if asked.made is not None else asked.place
            return [_at_run_time(scripts, made, device_of(asked))]
        script, call = failed.script, failed.call
        if script is None or not isinstance(call, ast.Call) or called(call) != "load" or any(keyword.arg in ("map_location", None) for keyword in call.keywords) or len(call.args) != 1:
            return []
        last = call.keywords[-1].value if call.keywords else call.args[-1]
        if script.between(script.end(last), script.end(call)).strip() != ")":
            return []
        edits = [script.insert(script.end(last), ', map_location="cpu"')]
        return [scripts.fix('Bring the tensors of the file to the CPU: `map_location="cpu"`.', edits, "The model is then on the CPU: move it after `load_state_dict`.")]


def _at_run_time(scripts: Scripts, place: Place | None, device: str) -> Fix | None:
    """`"cuda"` as `"cuda" if torch.cuda.is_available() else "cpu"`, where it is written down."""
    found = scripts.node_at(place) if place is not None and not place.in_library else None
    if found is None:
        return None
    script, node = found
    written = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and part.value == device]
    torch, there = script.module_name("torch"), _AVAILABLE.get(device.partition(":")[0])
    if len(written) != 1 or torch is None or there is None:
        return None
    text = f'{script.segment(written[0])} if {torch}.{there} else "cpu"'
    parent = script.parent(written[0])
    bare = isinstance(parent, (ast.Call, ast.keyword, ast.Assign, ast.AnnAssign, ast.arguments, ast.Return))
    return scripts.fix(f"Choose it while the program runs: `{text}`.", [script.replace(written[0], text if bare else f"({text})")])
