"""An exception inside a custom backward: what forward did not keep for it, where forward has it."""

from __future__ import annotations

import ast
import difflib
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Function, Scripts
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.backward.custom_backward_raised import missing_on_context


class CustomBackwardRaisedFixer(Fixer):
    rule = "custom-backward-raised"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        """`ctx.scale` that nobody has set: `ctx.scale = scale` in forward, if that is what its argument is called."""
        custom, exception = evidence.custom, evidence.exception
        missing = re.fullmatch(r"'\w+' object has no attribute '(\w+)'", exception.message)
        script = scripts.get(custom.raised_at) if custom is not None else None
        node = script.node_at(custom.raised_at.span) if script is not None else None
        if exception.type != "AttributeError" or missing is None or script is None or node is None or custom.is_hook:
            return []
        alike = difflib.get_close_matches(missing[1], custom.set_on_context, 2, 0.75)
        if len(alike) == 1 and missing_on_context(evidence) and isinstance(node, ast.Attribute) and node.attr == missing[1]:
            line, column = script.end(node)
            edit = script.edit((line, column - len(node.attr)), (line, column), alike[0])
            return [scripts.fix(f"Read `{alike[0]}`, which forward has set.", [edit], "Right if that is what was meant.", safe=False)]
        owner = script.class_of(node)
        forward = next((item for item in owner.body if isinstance(item, Function) and item.name == "forward"), None) if owner is not None else None
        if forward is None or any(isinstance(item, Function) and item.name == "setup_context" for item in owner.body):
            return []
        names = [item.arg for item in (*forward.args.posonlyargs, *forward.args.args)]
        if len(names) < 2 or missing[1] not in names[1:] or forward.body[0].lineno == forward.lineno:
            return []
        first = next((s for s in forward.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))), None)
        if first is None:
            return []
        line = f"{names[0]}.{missing[1]} = {missing[1]}"
        return [scripts.fix(f"Keep it in forward: `{line}`.", script.before(first, line))]
