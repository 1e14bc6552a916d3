"""A gradient lost on the way: take the cut out, or replace it by something that has a derivative."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence, GradientCut, LostGradient, Place
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.hard_choices import softened
from torchsleuth.fixes.numpy_detour import with_torch
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Diagnosis, Edit, Fix, Known
from torchsleuth.wording import short

_MAKERS = {"tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor", "asarray"}
_FRESH = {"ones", "zeros", "rand", "randn", "full", "empty", "linspace", "tensor", "normal", "arange", "eye"}


class LostGradientFixer(Fixer):
    rule = "lost-gradient"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        lost = evidence.lost
        if lost is None:
            return []
        if not lost.cuts:
            return [_thawed(scripts, lost), _leaf_requires_grad(scripts, lost)]
        if lost.cuts[0].reason == "checkpoint":
            return [_not_reentrant(scripts, lost)]
        if any(cut.reason == "no_grad" for cut in lost.cuts):
            return _recorded(scripts, lost)
        # A detach was written on purpose. Where something else cuts too, that alone may be the mistake.
        accidental = [cut for cut in lost.cuts if cut.reason != "detach" or _handed_over(scripts, cut)]
        first = _opened(scripts, lost, accidental) if 0 < len(accidental) < len(lost.cuts) else None
        whole = _opened(scripts, lost, list(lost.cuts))
        return [first, whole] if first is not None or whole is not None else softened(scripts, lost)


def _opened(scripts: Scripts, lost: LostGradient, cuts: list[GradientCut]) -> Fix | None:
    """These cuts taken out; None where one of them cannot be."""
    edits: list[Edit] = []
    words: list[str] = []
    for cut in cuts:
        found = _without_cut(scripts, cut, lost)
        if found is None:
            return None
        edits += found[0]
        words.append(found[1])
    meaning = "The gradient then flows through all of these places." if len(cuts) > 1 else ""
    if len(cuts) < len(lost.cuts):
        others = ", ".join(f"`{short(cut.place.source, 40)}`" for cut in lost.cuts if cut not in cuts)
        meaning = f"No gradient flows through {others}, as it is written there."
    if any(cut.place.known is Known.INFERRED for cut in cuts):
        meaning = f"{meaning} Right if the gradient was lost there, which was not observed.".strip()
    return scripts.fix("; ".join(dict.fromkeys(words)) + ".", list(dict.fromkeys(edits)), meaning, safe=not meaning)


def _handed_over(scripts: Scripts, cut: GradientCut) -> bool:
    """The detach is only there because numpy asks for it: `x.detach().numpy()`."""
    found = _node(scripts, cut.place)
    return bool(cut.handed) or found is not None and _handed_on(*found) is not None


def _node(scripts: Scripts, place: Place | None) -> tuple[Script, ast.AST] | None:
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    return (script, node) if node is not None else None


# -- cuts that can be taken out -------------------------------------------------------------------


def _without_cut(scripts: Scripts, cut: GradientCut, lost: LostGradient) -> tuple[list[Edit], str] | None:
    found = _node(scripts, cut.place)
    if found is None:
        return None
    script, node = found
    if isinstance(node, ast.Call) and called(node) in _MAKERS and cut.reason == "copy":
        edits = _kept_tensor(script, node)
        return (edits, f"`{_stacked_word(script, node)}` keeps the history; `{ast.unparse(node.func)}` copies bare numbers") if edits else None
    if isinstance(node, ast.Call) and called(node) == "grad" and not any(k.arg in ("create_graph", None) for k in node.keywords) and (node.args or node.keywords):
        last = max(script.end(item) for item in [*node.args, *(k.value for k in node.keywords)])
        return [script.insert(last, ", create_graph=True")], "`create_graph=True` keeps the history of the gradient itself"
    outer = _handed_on(script, node)
    if outer is not None:
        return _stays_tensor(scripts, script, outer, lost) or with_torch(script, node)
    if cut.reason == "detach" and cut.handed:
        return None  # without it numpy refuses the tensor: "Can't call numpy() on Tensor that requires grad"
    if cut.reason == "detach":
        edits = _removed_link(script, node)
        return (edits, f"Leave out `.{cut.operation}{'()' if isinstance(node, ast.Call) else ''}`") if edits else None
    if cut.reason == "python":
        return _stays_tensor(scripts, script, node, lost) or with_torch(script, node)
    return None


def _handed_on(script: Script, node: ast.AST) -> ast.Call | None:
    """The `.numpy()` or `.item()` at the end of a chain that starts with a detach: `x.detach().cpu().numpy()`."""
    last = None
    while True:
        link = script.parent(node)
        call = script.parent(link) if isinstance(link, ast.Attribute) and link.value is node else None
        if not isinstance(call, ast.Call) or call.func is not link or link.attr not in ("cpu", "detach", "numpy", "item", "tolist"):
            return last
        if link.attr in ("numpy", "item", "tolist"):
            last = call
        node = call


def _removed_link(script: Script, node: ast.AST) -> list[Edit]:
    """`x.detach()` → `x`, `x.data` → `x`, `torch.detach(x)` → `x`."""
    if isinstance(node, ast.Attribute):
        return [script.edit(script.end(node.value), script.end(node), "")] if not _closing_bracket(script, node.value, node) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if path_of(node.func.value) == script.module_name("torch") and node.args:
            return [script.replace(node, script.closed(node.args[0]))]
        if _closing_bracket(script, node.func.value, node.func):
            # `(a + b).detach()`: the bracket stays.
            text = script.between(script.end(node.func.value), script.end(node))
            keep = text[: text.index(")") + 1]
            line, column = script.end(node.func.value)
            return [] if "\n" in keep else [script.edit((line, column + len(keep)), script.end(node), "")]
        return [script.edit(script.end(node.func.value), script.end(node), "")]
    return []


def _closing_bracket(script: Script, inner: ast.AST, outer: ast.AST) -> bool:
    return ")" in script.between(script.end(inner), script.end(outer))


def _kept_tensor(script: Script, call: ast.Call) -> list[Edit]:
    """`torch.tensor(losses)` → `torch.stack(losses)`; of one tensor: the tensor itself."""
    if len(call.args) != 1 or any(keyword.arg not in ("dtype", "device", "requires_grad") for keyword in call.keywords):
        return []
    torch = script.module_name("torch")
    argument = call.args[0]
    word = _stacked_word(script, call)
    suffix = "".join(f".to({script.segment(k.value)})" for k in call.keywords if k.arg in ("dtype", "device"))
    if word != "stack" or torch is None:
        bare = not suffix and isinstance(script.parent(call), (ast.Assign, ast.Return))
        return [script.replace(call, f"{script.segment(argument) if bare else script.closed(argument)}{suffix}")] if word else []
    return [script.replace(call, f"{torch}.stack({script.segment(argument)}){suffix}")]


def _stacked_word(script: Script, call: ast.Call) -> str:
    """`stack` for a list of tensors, the text of the argument for a single one, "" where it cannot be told."""
    argument = call.args[0]
    if isinstance(argument, (ast.List, ast.ListComp, ast.Tuple)) or (isinstance(argument, ast.Call) and called(argument) in ("list", "tuple")):
        nested = isinstance(argument, ast.List) and any(isinstance(item, (ast.List, ast.Constant)) for item in argument.elts)
        return "" if nested else "stack"
    name = path_of(argument)
    if name and _is_list_name(script, call, name):
        return "stack"
    return script.segment(argument) if "\n" not in script.segment(argument) else ""


def _is_list_name(script: Script, call: ast.AST, name: str) -> bool:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and any(path_of(target) == name for target in node.targets):
            if isinstance(node.value, (ast.List, ast.ListComp)) or called(node.value) == "list":
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and path_of(node.func.value) == name:
            return True
    return False


# -- values that went through Python --------------------------------------------------------------


def _stays_tensor(scripts: Scripts, script: Script, node: ast.AST, lost: LostGradient) -> tuple[list[Edit], str] | None:
    """`.item()` and the constructor that makes a tensor of it again, both left out."""
    edits: list[Edit] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int") and len(node.args) == 1:
        edits += [script.replace(node, script.closed(node.args[0]))]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in ("item", "tolist", "numpy"):
        inner: ast.expr = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and called(inner) in ("item", "tolist", "numpy", "detach", "cpu"):
            inner = inner.func.value
        if _closing_bracket(script, inner, node) and isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            alone = isinstance(script.parent(node), (ast.Call, ast.Assign, ast.Return, ast.keyword, ast.List))
            edits += [script.replace(node, script.segment(inner) if alone else script.closed(inner))]
        else:
            edits += [script.edit(script.end(inner), script.end(node), "")]
    else:
        return None
    wrapping = _rewrapping(scripts, script, node, lost)
    if wrapping is None or called(node) == "numpy" and _wants_arrays(scripts, script, node, wrapping):
        return None
    maker, call = wrapping
    if any(inner is node for inner in ast.walk(call)):
        return _unwrapped_inside(script, call, node, edits)
    kept = _kept_tensor(maker, call) if called(call) in _MAKERS else [maker.replace(call, maker.closed(call.args[0]))]
    if not kept or _overlap(edits, kept):
        return None
    spelled = ast.unparse(node.func) if isinstance(node.func, ast.Name) else f".{node.func.attr}"
    return [*edits, *kept], f"Leave out `{spelled}()` and `{ast.unparse(call.func)}`: the value stays a tensor with its history"


def _wants_arrays(scripts: Scripts, script: Script, node: ast.AST, wrapping: tuple[Script, ast.Call]) -> bool:
    """On its way the value meets a function of numpy's, or one of the program's that uses numpy: those want arrays."""
    maker, constructor = wrapping
    own = [other for other in (script.parent(node), *constructor.args) if other is not None]
    for place, top in ((script, script.statement_of(node)), *((maker, argument) for argument in own)):
        for call in ast.walk(top) if top is not None else ():
            if not isinstance(call, ast.Call):
                continue
            if path_of(call.func).split(".")[0] == (place.module_name("numpy") or "?"):
                return True
            function = next((item for item in ast.walk(place.tree) if isinstance(item, Function) and item.name == called(call)), None)
            if function is not None and place.module_name("numpy") in {path_of(item) for item in ast.walk(function)} - {""}:
                return True
    return False


def _unwrapped_inside(script: Script, call: ast.Call, node: ast.AST, edits: list[Edit]) -> tuple[list[Edit], str] | None:
    """`torch.tensor([v.item() for v in values])` → `torch.stack([v for v in values])`, in one edit."""
    argument, torch = call.args[0], script.module_name("torch")
    word = _stacked_word(script, call)
    if len(edits) != 1 or not word or torch is None or any(keyword.arg not in ("dtype", "device", "requires_grad") for keyword in call.keywords):
        return None
    span = edits[0].span
    inside = script.between(script.start(argument), (span.line, span.column)) + edits[0].replacement
    inside += script.between((span.end_line, span.end_column), script.end(argument))
    text = f"{torch}.stack({inside})" if word == "stack" else f"({inside})"
    text += "".join(f".to({script.segment(k.value)})" for k in call.keywords if k.arg in ("dtype", "device"))
    return [script.replace(call, text)], f"{'`torch.stack`' if word == 'stack' else 'The tensor itself'} keeps the history; `{ast.unparse(call.func)}` copies bare numbers"


def _overlap(one: list[Edit], other: list[Edit]) -> bool:
    from torchsleuth.linter.edits import without_overlaps

    every = [*one, *other]
    return len(without_overlaps((edit,) for edit in every)) != len(every)


def _rewrapping(scripts: Scripts, script: Script, node: ast.AST, lost: LostGradient) -> tuple[Script, ast.Call] | None:
    """The one `torch.tensor(…)` or `torch.from_numpy(…)` in the same function through which the values came back."""
    scope = script.scope_of(node)
    calls = [
        other
        for other in script.own_nodes(scope)
        if isinstance(other, ast.Call) and called(other) in (*_MAKERS, "from_numpy") and len(other.args) == 1 and names_in(other.args[0])
    ]
    module = script.module_name("torch")
    calls = [call for call in calls if isinstance(call.func, ast.Attribute) and path_of(call.func.value) == module]
    around = [call for call in calls if any(inner is node for inner in ast.walk(call))]
    calls = around or calls
    if len(calls) != 1:
        return None
    if _goes_through_numpy(script, scope, node):
        return None
    return script, calls[0]


def _goes_through_numpy(script: Script, scope: ast.AST, node: ast.AST) -> bool:
    """The values are worked on by numpy functions in between, which take no tensor that requires grad."""
    numpy = script.module_name("numpy")
    statement = script.statement_of(node)
    if numpy is None or statement is None:
        return False
    names = names_in(statement, ast.Store) | {numpy}
    for other in script.own_nodes(scope):
        if isinstance(other, ast.stmt) and not hasattr(other, "body") and numpy in names_in(other):
            if other is statement or names_in(other, ast.Load) & (names - {numpy}):
                return True
    return False


# -- no_grad --------------------------------------------------------------------------------------


def _recorded(scripts: Scripts, lost: LostGradient) -> list[Fix | None]:
    cut = next(cut for cut in lost.cuts if cut.reason == "no_grad")
    found = _node(scripts, cut.wrapper)
    if found is None:
        return [_switched_on(scripts, cut)]
    script, wrapper = found
    parent = script.parent(wrapper)
    if isinstance(parent, Function) and any(wrapper is item for item in parent.decorator_list):
        line = wrapper.lineno
        if script.source.lines[line - 1].strip().startswith("@") and script.end(wrapper)[0] == line:
            edits = [script.edit((line, 1), (line + 1, 1), "")]
            return [scripts.fix(f"Take `@{script.segment(wrapper)}` off `{parent.name}`: it is differentiated.", edits)]
        return []
    with_ = script.parent(parent) if isinstance(parent, ast.withitem) else None
    if not isinstance(with_, ast.With):
        return []
    if len(with_.items) > 1:
        return [_taken_out(scripts, script, with_, parent) or _enabled(scripts, script, wrapper)]
    if with_.items[0].optional_vars is not None:
        return [_enabled(scripts, script, wrapper)]
    return [_unwrapped(scripts, script, with_) or _enabled(scripts, script, wrapper)]


def _unwrapped(scripts: Scripts, script: Script, with_: ast.With) -> Fix | None:
    """The body of the block moved out to the left, the header gone."""
    first = with_.body[0]
    if first.lineno == with_.lineno:
        return None
    remove = len(script.indent_of(first)) - len(script.indent_of(with_))
    top = script.first_line(first)
    if script.source.lines[top - 1 - 0].strip() == "" or remove <= 0:
        return None
    edits = [script.edit((with_.lineno, 1), (script.end(with_.items[0].context_expr)[0] + 1, 1), "")]
    comments = script.end(with_.items[0].context_expr)[0] + 1
    edits += script.shifted(comments, script.end(with_)[0], remove=remove)
    # The first shifted line starts where the header's removal ends; both edits keep their order.
    header, rest = edits[0], edits[1:]
    if rest and rest[0].span.line == header.span.end_line:
        joined = script.edit((header.span.line, 1), (rest[0].span.end_line, rest[0].span.end_column), "")
        edits = [joined, *rest[1:]]
    text = " ".join(script.between(script.start(with_), script.end(with_.items[0].context_expr)).split())
    return scripts.fix(f"Compute it outside `{text}`.", edits)


def _taken_out(scripts: Scripts, script: Script, with_: ast.With, item: ast.withitem) -> Fix | None:
    """`with torch.no_grad(), other():` → `with other():`."""
    if item.optional_vars is not None:
        return None
    at = with_.items.index(item)
    node = item.context_expr
    if at + 1 < len(with_.items):
        edit = script.edit(script.start(node), script.start(with_.items[at + 1].context_expr), "")
        between = script.between(script.end(node), script.start(with_.items[at + 1].context_expr))
    else:
        last = with_.items[at - 1].optional_vars or with_.items[at - 1].context_expr
        edit = script.edit(script.end(last), script.end(node), "")
        between = script.between(script.end(last), script.start(node))
    return scripts.fix(f"Compute it outside `{script.segment(node)}`.", [edit]) if between.strip() == "," else None


def _enabled(scripts: Scripts, script: Script, wrapper: ast.AST) -> Fix | None:
    torch = script.module_name("torch")
    return scripts.fix("Record what is computed there: `enable_grad`.", [script.replace(wrapper, f"{torch}.enable_grad()")]) if torch else None


def _not_reentrant(scripts: Scripts, lost: LostGradient) -> Fix | None:
    """`use_reentrant=False` at every checkpoint that cuts."""
    edits: list[Edit] = []
    for cut in lost.cuts:
        found = _node(scripts, cut.place) if cut.reason == "checkpoint" and not cut.place.in_library else None
        if found is None or not isinstance(found[1], ast.Call) or not found[1].args:
            return None
        script, call = found
        said = next((k for k in call.keywords if k.arg == "use_reentrant"), None)
        if any(k.arg is None for k in call.keywords) or said is not None and not isinstance(said.value, ast.Constant):
            return None
        last = max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)])
        edits.append(script.replace(said.value, "False") if said is not None else script.insert(last, ", use_reentrant=False"))
    return scripts.fix("`use_reentrant=False` records what runs inside the checkpoint as usual.", edits)


def _switched_on(scripts: Scripts, cut: GradientCut) -> Fix | None:
    """`torch.set_grad_enabled(False)` as a statement of its own, the only one in the file."""
    script = scripts.get(cut.place.via or cut.place)
    if script is None:
        return None
    found = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node) == "set_grad_enabled" and node.args and isinstance(node.args[0], ast.Constant)
        and node.args[0].value is False and isinstance(script.parent(node), ast.Expr)
    ]  # fmt: skip
    if len(found) != 1:
        return None
    return scripts.fix("Leave recording on: `set_grad_enabled(True)`.", [script.replace(found[0].args[0], "True")])


# -- nothing requires grad ------------------------------------------------------------------------


def _thawed(scripts: Scripts, lost: LostGradient) -> Fix | None:
    if not lost.frozen or lost.trainable:
        return None
    script = scripts.get(lost.call)
    if script is None:
        return None
    values: list[ast.expr] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
            if any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets):
                values.append(node.value)
        if isinstance(node, ast.Call) and called(node) == "requires_grad_" and node.args and isinstance(node.args[0], ast.Constant):
            if node.args[0].value is False:
                values.append(node.args[0])
    if len(values) != 1:
        return None
    if isinstance(script.scope_of(values[0]), Function):
        return _not_frozen(scripts, script, lost, script.scope_of(values[0]))
    return scripts.fix(
        "Let these parameters train: `requires_grad` True.", [script.replace(values[0], "True")], "All of them then get gradients.", safe=False
    )


def _not_frozen(scripts: Scripts, script: Script, lost: LostGradient, freezing: ast.AST) -> Fix | None:
    """A function of the program's freezes what it is given: what the optimizer trains is let go again after its call."""
    calls = [
        script.parent(node)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node) == freezing.name and isinstance(script.parent(node), ast.Expr)
    ]
    trained = {
        path_of(inner.func.value)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node)[:1].isupper()
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and called(inner) == "parameters" and isinstance(inner.func, ast.Attribute)
    } - {""}
    if len(calls) != 1 or len(trained) != 1 or not script.is_alone_on_line(calls[0]):
        return None
    name, text = trained.pop(), script.segment(calls[0])
    if all(item.startswith(f"{name}.") for item in lost.frozen):
        return scripts.fix(f"Leave out `{short(text, 40)}`: it freezes all that the optimizer is to train.", script.removed(calls[0]), "", safe=False)
    if not any(item.startswith(f"{name}.") for item in lost.frozen):
        return None
    line = f"{name}.requires_grad_(True)"
    return scripts.fix(
        f"Let train what the optimizer was given: `{line}` after `{short(text, 40)}`.", script.after(calls[0], line), "The rest stays frozen.", safe=False
    )


def _leaf_requires_grad(scripts: Scripts, lost: LostGradient) -> Fix | None:
    """The one tensor of floats that the loss is computed from, made in the same function."""
    script = scripts.get(lost.call)
    statement = script.statement_at(lost.call.span) if script is not None else None
    if script is None or statement is None or lost.frozen or lost.trainable:
        return None
    scope = script.scope_of(statement)
    wanted = names_in(statement, ast.Load)
    makers: list[ast.Call] = []
    bound = [node for node in script.own_nodes(scope) if isinstance(node, ast.Assign)]
    for node in sorted(bound, key=lambda item: -item.lineno):
        if not names_in(node, ast.Store) & wanted:
            continue
        wanted |= names_in(node.value, ast.Load)
        if isinstance(node.value, ast.Call) and called(node.value) in _FRESH and not names_in(node.value.func) - {script.module_name("torch") or ""}:
            makers.append(node.value)
    floats = [call for call in makers if _is_float(call)]
    if len(floats) != 1 or len(makers) != 1:
        return None
    call = floats[0]
    line, column = script.end(call)
    return scripts.fix(
        f"Ask for its gradient: `{called(call)}(..., requires_grad=True)`.",
        [script.insert((line, column - 1), ", requires_grad=True" if call.args or call.keywords else "requires_grad=True")],
        f"`{script.segment(script.statement_of(call).targets[0])}` is then what backward computes a gradient for.",
        safe=False,
    )


def _is_float(call: ast.Call) -> bool:
    name = called(call)
    if any(keyword.arg == "requires_grad" for keyword in call.keywords):
        return False
    if name in ("ones", "zeros", "rand", "randn", "linspace", "normal", "eye", "empty"):
        return not any(k.arg == "dtype" and "int" in ast.unparse(k.value) for k in call.keywords)
    return any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in ast.walk(call))
