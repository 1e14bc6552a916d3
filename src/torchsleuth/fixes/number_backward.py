"""A loss that became a plain number on its way: the tensor itself handed on."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called, users
from torchsleuth.model import Diagnosis, Edit, Fix


class NumberBackwardFixer(Fixer):
    rule = "number-backward"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        root = evidence.number_root
        edits: list[Edit] = []
        for cut in root.cuts if root is not None else ():
            found = scripts.node_at(users(cut.place))
            script, node = found if found is not None else (None, None)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
                edits.append(script.edit(script.end(node.func.value), script.end(node), ""))
            elif isinstance(node, ast.Call) and called(node) == "float" and isinstance(node.func, ast.Name) and len(node.args) == 1:
                edits.append(script.replace(node, script.closed(node.args[0])))
            else:
                return []
        meaning = f"`{root.name}` is then a tensor with its history; where only its number is wanted, take `.item()` there." if root is not None else ""
        return [scripts.fix("Hand on the tensor, not its number.", edits, meaning, safe=False)]
