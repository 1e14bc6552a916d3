"""A gradient that is NaN at the edge of an operation: keep its argument away from there."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix

_SMALL = "1e-12"
_AT_ZERO = ("sqrt", "rsqrt", "log", "log2", "log10")


class AnomalyNanFixer(Fixer):
    rule = "anomaly-nan"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.nan_node
        place = found.edge_place if found is not None else None
        script = scripts.get(place)
        node = script.node_at(place.span) if script is not None else None
        if script is None or node is None:
            return []
        argument, receives = _argument(node, found.edge)
        if argument is None:
            return []
        text = script.segment(argument)
        simple = isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        inner = f"{text} + {_SMALL}" if simple or script.has_brackets(argument) else f"({text}) + {_SMALL}"
        new = inner if receives else f"({inner})"
        return [
            scripts.fix(
                f"Keep the argument of `{found.edge}` away from 0: add {_SMALL}.",
                [script.replace(argument, new)],
                f"Every value of it is then {_SMALL} larger; its slope is finite everywhere.",
                safe=False,
            )
        ]


def _argument(node: ast.AST, edge: str) -> tuple[ast.expr | None, bool]:
    """What the operation is applied to, and whether it stands between a call's brackets: `torch.sqrt(d)`, `d.sqrt()`, `d ** 0.5`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and edge == "pow":
        return node.left, False
    if edge not in _AT_ZERO or not isinstance(node, ast.Call) or called(node) != edge or node.keywords:
        return None, False
    if len(node.args) == 1:
        return node.args[0], True
    return (node.func.value if not node.args and isinstance(node.func, ast.Attribute) else None), False
