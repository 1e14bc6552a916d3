"""A choice that has no derivative on the way to the loss: a threshold, an argmax, a comparison of class numbers.

Where the choice itself must be learned, the straight-through form keeps its values and gives it the gradient of the soft
one; where class numbers were compared, cross-entropy of the scores is what can be learned. Each fix says what it changes.
"""

from __future__ import annotations

import ast

from torchsleuth.evidence import GradientCut, LostGradient
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of
from torchsleuth.model import Edit, Fix

_SOFT = "The values stay as they are; the gradient is an approximation: that of {soft}."
_LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"}
_LOSS_MODULES = {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss"}
_CASTS = {"float", "double", "half", "long", "int", "bfloat16"}


def softened(scripts: Scripts, lost: LostGradient) -> list[Fix | None]:
    """Fixes for a single cut that gives integers or booleans."""
    if len(lost.cuts) != 1 or lost.cuts[0].reason != "integer":
        return []
    cut = lost.cuts[0]
    script = scripts.get(cut.place)
    node = script.node_at(cut.place.span) if script is not None else None
    if script is None or script.module_name("torch") is None:
        return []
    if isinstance(node, ast.Compare):
        return [_threshold(scripts, script, node)]
    if isinstance(node, ast.Call) and called(node) in ("argmax", "argmin"):
        return [_class_numbers(scripts, script, node, cut, lost), _selection(scripts, script, node, cut)]
    return []


# -- thresholds -----------------------------------------------------------------------------------


def _threshold(scripts: Scripts, script: Script, compare: ast.Compare) -> Fix | None:
    """`(p > 0.5).float()` with the gradient of `p`."""
    if len(compare.ops) != 1 or not isinstance(compare.ops[0], (ast.Gt, ast.GtE, ast.Lt, ast.LtE)):
        return None
    hard, text = _used(script, compare)
    if hard is None:
        return None
    statement = script.statement_of(compare)
    soft = script.segment(compare.left)
    edits: list[Edit] = []
    if not path_of(compare.left):
        name = _fresh(script, "soft")
        if "\n" in soft or hasattr(statement, "body"):
            return None
        edits = script.before(statement, f"{name} = {soft}")
        text = text.replace(soft, name, 1)
        soft = name
    rises = isinstance(compare.ops[0], (ast.Gt, ast.GtE))
    through = f"+ {soft} - {soft}.detach()" if rises else f"- {soft} + {soft}.detach()"
    whole = f"{text} {through}"
    bare = script.has_brackets(hard) or isinstance(script.parent(hard), (ast.Assign, ast.Return))
    edits.append(script.replace(hard, whole if bare else f"({whole})"))
    return scripts.fix(f"Straight-through: the hard choice with the gradient of `{soft}`.", edits, _SOFT.format(soft=f"`{soft}`"), safe=False)


def _used(script: Script, compare: ast.Compare) -> tuple[ast.expr | None, str]:
    """What to replace, and its text as floats: `(p > t).float()`, or `(p > t)` as a factor."""
    link = script.parent(compare)
    cast = script.parent(link) if isinstance(link, ast.Attribute) else None
    if isinstance(cast, ast.Call) and cast.func is link:
        if link.attr in ("float", "double", "half", "bfloat16") or (link.attr in ("to", "type", "type_as") and cast.args):
            return cast, script.segment(cast)
        return None, ""
    if isinstance(link, ast.BinOp) and isinstance(link.op, ast.Mult):
        return compare, f"({script.segment(compare)}).float()"
    return None, ""


def _fresh(script: Script, name: str) -> str:
    taken = names_in(script.tree)
    return next(candidate for candidate in (name, f"{name}_values", f"{name}_2", f"{name}_3") if candidate not in taken)


# -- class numbers against labels -------------------------------------------------------------------


def _class_numbers(scripts: Scripts, script: Script, argmax: ast.Call, cut: GradientCut, lost: LostGradient) -> Fix | None:
    """`mse(scores.argmax(1).float(), y.float())` or an accuracy as a loss: cross-entropy of the scores instead."""
    tensor = cut.tensor
    if called(argmax) != "argmax" or tensor is None or len(tensor.shape) != 2 or _axis(script, argmax, 2) != 1:
        return None
    statement, name = script.statement_of(argmax), _bound(script, argmax)
    place = lost.made
    loss = script.node_at(place.span) if place is not None and scripts.get(place) is script else None
    loss_statement = script.statement_of(loss) if isinstance(loss, ast.expr) else None
    if not isinstance(loss_statement, (ast.Assign, ast.Return)) or loss_statement.value is None or hasattr(statement, "body"):
        return None
    pair = _compared(script, loss_statement, argmax, name)
    if pair is None:
        return None
    whole, label = pair
    scores = _receiver(script, argmax)
    if scores is None or script.scope_of(loss_statement) is not script.scope_of(statement):
        return None
    edits: list[Edit] = []
    text = script.segment(scores)
    if not path_of(scores):
        if "\n" in text or loss_statement is statement:
            return None
        fresh = _fresh(script, "scores")
        edits = [*script.before(statement, f"{fresh} = {text}"), script.replace(scores, fresh)]
        text = fresh
    torch = script.module_name("torch")
    functional = next((n for n in ("F", "functional") if _imports_functional(script, n)), f"{torch}.nn.functional")
    edits.append(script.replace(whole, f"{functional}.cross_entropy({text}, {label}.long())"))
    meaning = f"The loss is then the cross-entropy of `{text}` with the class numbers `{label}`: another number, which can be learned from."
    return scripts.fix("Compare the scores with the classes, not the chosen class: `cross_entropy`.", edits, meaning, safe=False)


def _compared(script: Script, statement: ast.Assign | ast.Return, argmax: ast.Call, name: str) -> tuple[ast.expr, str] | None:
    """The expression that makes a loss of the class numbers, and the labels in it."""
    value = statement.value

    def is_choice(node: ast.expr) -> bool:
        bare = _without_casts(node)
        return bare is argmax or (bool(name) and path_of(bare) == name)

    for node in ast.walk(value):
        if isinstance(node, ast.Call) and _is_loss(script, statement, node) and len(node.args) == 2 and not node.keywords:
            choices = [is_choice(argument) for argument in node.args]
            if sum(choices) == 1:
                return node, script.closed(_without_casts(node.args[choices.index(False)]))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            sides = (node.left, node.comparators[0])
            choices = [is_choice(side) for side in sides]
            if sum(choices) == 1:
                return value, script.closed(_without_casts(sides[choices.index(False)]))
    return None


def _is_loss(script: Script, statement: ast.stmt, call: ast.Call) -> bool:
    if called(call) in _LOSSES or called(call.func) in _LOSS_MODULES:
        return True
    name = path_of(call.func)
    return any(
        isinstance(node, ast.Assign) and called(node.value) in _LOSS_MODULES and any(path_of(target) == name != "" for target in node.targets)
        for node in ast.walk(script.tree)
    )


def _without_casts(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS and not node.args:
        node = node.func.value
    return node


def _imports_functional(script: Script, name: str) -> bool:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Import) and any(a.name == "torch.nn.functional" and a.asname == name for a in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "torch.nn" and any(a.name == "functional" and (a.asname or a.name) == name for a in node.names):
            return True
    return False


# -- an index that is to be learned -----------------------------------------------------------------


def _selection(scripts: Scripts, script: Script, argmax: ast.Call, cut: GradientCut) -> Fix | None:
    """`table[scores.argmax(-1)]` as a product with a one-hot row that has the gradient of the softmax."""
    tensor = cut.tensor
    rank = len(tensor.shape) if tensor is not None else 0
    statement, name = script.statement_of(argmax), _bound(script, argmax)
    scores = _receiver(script, argmax)
    if not rank or _axis(script, argmax, rank) != rank - 1 or scores is None or statement is None or hasattr(statement, "body"):
        return None
    used = _taken_with(script, statement, argmax, name)
    if used is None:
        return None
    whole, table = used
    use = script.statement_of(whole)
    if use is None or hasattr(use, "body") or script.scope_of(use) is not script.scope_of(statement):
        return None
    text, torch = script.segment(scores), script.module_name("torch")
    edits: list[Edit] = []
    if not path_of(scores):
        if "\n" in text or use is statement:
            return None
        fresh = _fresh(script, "scores")
        edits = [*script.before(statement, f"{fresh} = {text}"), script.replace(scores, fresh)]
        text = fresh
    sign = "-" if called(argmax) == "argmin" else ""
    soft = _fresh(script, "soft")
    chosen = name or script.segment(argmax)
    one_hot = f"{torch}.nn.functional.one_hot({chosen}, {text}.size(-1))"
    edits += script.before(use, f"{soft} = {torch}.softmax({sign}{text}, dim=-1)")
    edits.append(script.replace(whole, f"{torch}.tensordot({one_hot} + {soft} - {soft}.detach(), {table}, dims=1)"))
    word = f"a softmax over `{text}`"
    return scripts.fix("Straight-through: the chosen row, with the gradient of a weighted selection.", edits, _SOFT.format(soft=word), safe=False)


def _taken_with(script: Script, statement: ast.stmt, argmax: ast.Call, name: str) -> tuple[ast.expr, str] | None:
    """The one use of the index: `table[index]` or `embedding(index)`; with the text of what it selects from."""
    if name:
        scope = script.scope_of(statement)
        uses = [n for n in script.own_nodes(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        if len(uses) != 1:
            return None
        index: ast.expr = uses[0]
    else:
        index = argmax
    parent = script.parent(index)
    if isinstance(parent, ast.Subscript) and parent.slice is index and isinstance(parent.ctx, ast.Load) and path_of(parent.value):
        return parent, script.segment(parent.value)
    if isinstance(parent, ast.Call) and parent.args == [index] and not parent.keywords:
        function = path_of(parent.func)
        made = [n for n in ast.walk(script.tree) if isinstance(n, ast.Assign) and any(path_of(t) == function != "" for t in n.targets)]
        if len(made) == 1 and called(made[0].value) == "Embedding":
            return parent, f"{function}.weight"
    return None


def _bound(script: Script, argmax: ast.Call) -> str:
    """The variable that holds the result of the argmax, "" where it is used on the spot."""
    parent = script.parent(argmax)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    return ""


def _receiver(script: Script, argmax: ast.Call) -> ast.expr | None:
    if not isinstance(argmax.func, ast.Attribute):
        return None
    if path_of(argmax.func.value) == script.module_name("torch"):
        return argmax.args[0] if argmax.args else None
    return argmax.func.value


def _axis(script: Script, argmax: ast.Call, rank: int) -> int | None:
    given = next((k.value for k in argmax.keywords if k.arg in ("dim", "axis")), None)
    if any(k.arg == "keepdim" for k in argmax.keywords):
        return None
    if given is None:
        skip = 1 if isinstance(argmax.func, ast.Attribute) and path_of(argmax.func.value) == script.module_name("torch") else 0
        given = argmax.args[skip] if len(argmax.args) == skip + 1 else None
    try:
        value = ast.literal_eval(given) if given is not None else None
    except ValueError:
        return None
    return value % rank if isinstance(value, int) and not isinstance(value, bool) and -rank <= value < rank else None
