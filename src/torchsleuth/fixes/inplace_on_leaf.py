"""A write into a leaf: under `no_grad` where it initialises or updates, out of place where it is part of the computation."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, InplaceTarget
from torchsleuth.fixes.aliases import is_read_later
from torchsleuth.fixes.elements import is_lost_with_the_round, renewed
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.outofplace import out_of_place
from torchsleuth.fixes.script import Function, Script, Scripts, called, path_of
from torchsleuth.model import Diagnosis, Edit, Fix

_NOT_DIFFERENTIATED = "The write is then not part of what is differentiated."
_RENEWED = "`{name}` is then a {kind} of new tensors, and the update part of what is differentiated; the old tensors keep their values."


class InplaceOnLeafFixer(Fixer):
    rule = "inplace-on-leaf"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        target = evidence.inplace_target
        frame = evidence.user_frame
        place = target.place if target is not None else frame.place if frame is not None else None
        if place is not None and place.in_library:
            place = place.via
        script = scripts.get(place)
        statement = script.statement_at(place.span) if script is not None else None
        if script is None or statement is None:
            return []
        if target is not None and target.same_as is not None:
            return [_copied_where_kept(scripts, script, statement, *target.same_as)]
        # An expanded tensor has its elements in memory once for many: nobody may write into it, and nobody gives it its values so.
        expanded = target is not None and target.made_by in ("expand", "expand_as", "broadcast_to")
        # Gradients that keep their history are asked for to be differentiated: then the step by hand is part of that.
        update = not expanded and _is_update(script, statement, target) and not _is_used_on(script, statement, target) and not _keeps_history(script, statement)
        wrapped = under_no_grad(scripts, script, statement, update) if not expanded else None
        rewrite = out_of_place(script, place.span)
        other = None
        if rewrite is not None and not update and not is_lost_with_the_round(script, statement):
            name = target.tensor.name if target is not None else ""
            meaning = "The write is then part of what is differentiated"
            leaf = target is not None and target.tensor.is_leaf
            meaning += f", and `{name}` is no longer a leaf afterwards: its `.grad` stays empty." if leaf and name.isidentifier() else "."
            if rewrite.seen_by:
                meaning += f" It is no longer seen by {rewrite.seen_by}."
            other = scripts.fix(rewrite.title, rewrite.edits, meaning, safe=False)
        inner = renewed(scripts, script, statement, _RENEWED) if _keeps_history(script, statement) else None
        if inner is not None:
            return [inner, wrapped]
        values_only = update or other is None or (target is not None and not target.tensor.is_leaf) or _gives_values(script, statement)
        return [wrapped, other] if values_only else [other, wrapped]


def _copied_where_kept(scripts: Scripts, script: Script, statement: ast.stmt, written: str, other: str) -> Fix | None:
    """`self.average = {k: p for k, p in model.named_parameters()}` keeps the parameters themselves: copies of them instead.

    And written to under `no_grad`: with a parameter added to it, a copy would otherwise carry the history of all steps.
    """
    expression = ast.parse(written, mode="eval").body
    container = path_of(expression.value) if isinstance(expression, ast.Subscript) else ""
    kept = [
        node.value
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and container and any(path_of(target) == container for target in node.targets)
    ]
    if len(kept) != 1 or not isinstance(kept[0], (ast.DictComp, ast.ListComp)):
        return None
    value = kept[0].value if isinstance(kept[0], ast.DictComp) else kept[0].elt
    if not isinstance(value, ast.Name):
        return None
    meaning = f"The write then goes into the copy, and `{other}` keeps its values."
    outside = under_no_grad(scripts, script, statement, update=True)
    title = f"Keep copies in `{container}`, `.detach().clone()`, and write under `no_grad`."
    return scripts.fix(title, [*script.wrapped(value, ".detach().clone()"), *outside.edits], meaning, safe=False) if outside is not None else None


def _keeps_history(script: Script, statement: ast.stmt) -> bool:
    return any(
        k.arg == "create_graph" and isinstance(k.value, ast.Constant) and k.value.value is True
        for node in script.own_nodes(script.scope_of(statement)) if isinstance(node, ast.Call) for k in node.keywords
    )  # fmt: skip


def _is_update(script: Script, statement: ast.stmt, target: InplaceTarget | None) -> bool:
    """Written to give a leaf its values: a parameter, an initialisation, a step by hand, a tensor whose `.grad` is read."""
    if target is not None:
        names = [fact.name for fact in (target.tensor, target.base) if fact is not None]
        kinds = [fact.kind for fact in (target.tensor, target.base) if fact is not None]
        if "parameter" in kinds:
            return True
    else:
        names = []
    function = script.scope_of(statement)
    if isinstance(function, Function) and any(word in function.name for word in ("init", "reset")):
        return True
    if any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in ast.walk(statement)):
        return True
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and path_of(node.value) in names:
            return True
        if isinstance(node, ast.Call) and path_of(node.func).split(".")[-2:-1] == ["optim"]:
            if any(path_of(inner) in names for argument in node.args for inner in ast.walk(argument)):
                return True
    return False


def _is_used_on(script: Script, statement: ast.stmt, target: InplaceTarget | None) -> bool:
    """A view with a name of its own, made for the computation and read further down: not there to give the leaf its values."""
    if target is None or target.tensor.is_leaf or not target.tensor.name.isidentifier() or target.base is None:
        return False
    return target.tensor.name != target.base.name and is_read_later(script, statement, target.tensor.name) and not script.loops_around(statement)


def _gives_values(script: Script, statement: ast.stmt) -> bool:
    """A loop that fills a tensor, with no backward after it: more likely its values than part of a loss."""
    return isinstance(statement, (ast.Assign, ast.AugAssign)) and bool(script.loops_around(statement)) and not _feeds_backward(script, statement)


def _feeds_backward(script: Script, statement: ast.stmt) -> bool:
    scope = script.scope_of(statement)
    return any(isinstance(node, ast.Call) and called(node) == "backward" and node.lineno >= statement.lineno for node in script.own_nodes(scope))


def under_no_grad(scripts: Scripts, script: Script, statement: ast.stmt, update: bool) -> Fix | None:
    """The write, and the writes next to it, under `with torch.no_grad():`."""
    torch = script.module_name("torch")
    if torch is None:
        return None
    header = f"with {torch}.no_grad():"
    groups = [_neighbours(script, _whole_line(script, statement))]
    function = script.scope_of(statement)
    if isinstance(function, Function) and update and any(word in function.name for word in ("init", "reset")):
        # An initialisation usually has more of the kind: each of them would be the next failure.
        for other in script.own_nodes(function):
            if _is_write(other) and not _by_init(other) and not any(other in group for group in groups) and not _is_under_no_grad(script, other):
                groups.append(_neighbours(script, _whole_line(script, other)))
    edits: list[Edit] = []
    for group in groups:
        found = script.inside(header, group[0], group[-1])
        if not found:
            if group is groups[0]:
                return None
            continue
        edits += found
    meaning = "" if update else _NOT_DIFFERENTIATED
    if update and isinstance(function, Function) and function.name in ("forward", "__call__"):
        meaning = "The parameter then stays changed after the call. To use other values in this pass only, compute with a new tensor and leave the parameter."
    return scripts.fix(f"Write under `{header}`.", edits, meaning, safe=not meaning)


def _whole_line(script: Script, statement: ast.stmt) -> ast.stmt:
    """`for i in range(3): w[i, i] = 1` as a whole, where the write stands on the line of its loop or condition."""
    while True:
        parent = script.parent(statement)
        if not isinstance(parent, (ast.For, ast.While, ast.If)) or parent.lineno != statement.lineno or parent.orelse or _returns(parent):
            return statement
        statement = parent


def _returns(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) for node in ast.walk(statement))


def _neighbours(script: Script, statement: ast.stmt) -> list[ast.stmt]:
    block = script.block_of(statement)
    at = block.index(statement)
    first = last = at
    own = _target(statement)

    def belongs(other: ast.stmt) -> bool:
        if isinstance(other, ast.Expr) and called(other.value) == "zero_grad":
            return other.lineno in (block[first].lineno, block[last].lineno)  # on one line with a write
        by_gradient = isinstance(other, ast.AugAssign) and any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(other.value))
        return _is_write(other) and (_is_parameter_like(other) or by_gradient or _target(other) == own != "")

    while first > 0 and belongs(block[first - 1]):
        first -= 1
    while last + 1 < len(block) and belongs(block[last + 1]):
        last += 1
    return block[first : last + 1]


def _is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        name = called(node.value)
        return name.endswith("_") and not name.endswith("__") and isinstance(node.value.func, ast.Attribute) and name != "requires_grad_"
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript)


def _by_init(node: ast.AST) -> bool:
    """`nn.init.normal_(weight)` switches recording off by itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and path_of(node.value.func).split(".")[-2:-1] == ["init"]


def _is_parameter_like(node: ast.stmt) -> bool:
    """Of neighbouring writes only those that go into attributes (`layer.bias.zero_()`), or zero a gradient."""
    path = _target(node)
    return path.rsplit(".", 1)[-1] in ("weight", "bias", "grad", "data") or path.count(".") >= 1


def _target(node: ast.stmt) -> str:
    """What a write goes into: `w` for `w[0] = 1` and `w.clamp_(0, 1)`."""
    if not _is_write(node):
        return ""
    target: ast.AST | None = node.value if isinstance(node, ast.Expr) else node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    while isinstance(target, (ast.Call, ast.Subscript)):
        target = target.func.value if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) else getattr(target, "value", None)
    return path_of(target)


def _is_under_no_grad(script: Script, node: ast.AST) -> bool:
    for ancestor in script.ancestors(node):
        if isinstance(ancestor, ast.With) and any(called(item.context_expr) in ("no_grad", "inference_mode") for item in ancestor.items):
            return True
    return False
