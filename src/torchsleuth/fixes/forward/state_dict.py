"""A checkpoint under other names: strip the prefix, or take the weights out of what holds them."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.forward.state_dict import prefix_of


class StateDictFixer(Fixer):
    rule = "state-dict"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.refused_state
        place = found.place if found is not None and not found.place.in_library else found.place.via if found is not None else None
        script = scripts.get(place)
        call = script.node_at(place.span) if script is not None else None
        if script is None or not isinstance(call, ast.Call) or called(call) != "load_state_dict" or len(call.args) != 1:
            return []
        state = call.args[0]
        text = script.closed(state)
        prefix, side = prefix_of(found)
        if found.nested:
            return [scripts.fix(f"Take the weights out of it: `[{found.nested!r}]`.", script.wrapped(state, f"[{found.nested!r}]"))]
        if prefix and side == "checkpoint":
            new = f"{{key.removeprefix({prefix!r}): value for key, value in {text}.items()}}"
            return [scripts.fix(f"Strip the prefix `{prefix}` from the names.", [script.replace(state, new)])]
        if prefix and isinstance(call.func, ast.Attribute) and prefix.count(".") == 1:
            return [scripts.fix(f"Load into the inner module: `.{prefix.rstrip('.')}`.", script.wrapped(call.func.value, f".{prefix.rstrip('.')}"))]
        return []
