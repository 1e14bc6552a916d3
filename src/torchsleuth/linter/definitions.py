"""What a name was last set to, by the text alone: for values of which nothing else is known."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.training import own_nodes

# Names under which targets are handed in; they carry no gradient.
LABEL = re.compile(r"^(y|yb|ys|y_?true|label|labels|lbl|target|targets|tgt|gt|truth|ground_truth|answer|answers)$", re.IGNORECASE)
DISCRETE_METHODS = frozenset("argmax argmin argsort long int bool eq ne gt lt ge le byte".split())
REACH = 200


def last_definition(function: ast.AST, name: str, line: int) -> ast.Assign | ast.AugAssign | None:
    """The statement that last set this name above a line; None where it is set in any other way there."""
    found: ast.AST | None = None
    for node in own_nodes(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension, ast.NamedExpr)):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [i.optional_vars for i in node.items if i.optional_vars is not None]
        at = getattr(node, "lineno", 0) or getattr(getattr(node, "target", None), "lineno", 0)
        if at < line and any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t)):
            if found is None or at >= found.lineno:
                found = node if hasattr(node, "lineno") else node.target
    if isinstance(found, ast.AugAssign) and isinstance(found.target, ast.Name):
        return found
    return found if isinstance(found, ast.Assign) and len(found.targets) == 1 and isinstance(found.targets[0], ast.Name) else None


class Paths:
    """Whether a gradient may come out of an expression, and which steps (argmax, comparison) it cannot pass."""

    def __init__(self, function: ast.AST, dotted) -> None:
        self.function, self.dotted = function, dotted
        self.cuts: list[ast.expr] = []
        self.left = REACH

    def may_carry(self, node: ast.AST, line: int) -> bool:
        self.left -= 1
        if self.left <= 0:
            return True
        if isinstance(node, ast.Constant):
            return False
        if isinstance(node, ast.Name):
            if LABEL.match(node.id) or self.dotted(node).startswith("torch"):
                return False
            made = last_definition(self.function, node.id, line)
            return not isinstance(made, ast.Assign) or self.may_carry(made.value, made.lineno)
        if isinstance(node, ast.Compare):
            return self._cut(node, [node.left, *node.comparators], line)
        if isinstance(node, ast.Call):
            function = node.func
            last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            of_torch = self.dotted(function).startswith("torch.")
            given = [*node.args, *(k.value for k in node.keywords)]
            if last in DISCRETE_METHODS and isinstance(function, ast.Attribute):
                return self._cut(node, given if of_torch else [function.value], line)
            if not isinstance(function, ast.Attribute) and not of_torch:
                return True  # a function or a model: what it returns is not shown
            if isinstance(function, ast.Attribute) and not of_torch and (_is_self(function) or isinstance(function.value, ast.Name) and not self._is_value(function.value)):
                return True
            return any([self.may_carry(part, line) for part in (given if of_torch else [function.value, *given])])
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List)):
            return any([self.may_carry(part, line) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)])
        if isinstance(node, ast.Subscript):
            return self.may_carry(node.value, line)
        return True

    def _is_value(self, node: ast.Name) -> bool:
        return LABEL.match(node.id) is not None or last_definition(self.function, node.id, node.lineno + 1) is not None

    def _cut(self, node: ast.expr, parts: list[ast.expr], line: int) -> bool:
        if any([self.may_carry(part, line) for part in parts]):
            self.cuts.append(node)
        return False


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"
