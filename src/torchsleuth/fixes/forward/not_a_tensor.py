"""Something else than a tensor: the part that is meant taken out of it, a list stacked, a `return` added, a class made before it is called."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Foreign
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.forward.parts import Part, meant, parts
from torchsleuth.fixes.forward.results import is_taken_apart, results_of_layers
from torchsleuth.fixes.script import Function, Script, Scripts, called
from torchsleuth.model import Diagnosis, Fix

_OF_ALL = ("mean", "sum", "max", "min", "std", "var", "prod", "median")


class NotATensorFixer(Fixer):
    rule = "not-a-tensor"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        layers = results_of_layers(failed)
        given = failed.operation.foreign if failed.operation is not None else None
        if layers or given is None:
            return layers
        if given.story == "no return":
            return [_with_return(failed, given)]
        if given.story == "batch":
            return [_of_batch(failed, given)] if given.kind in ("list", "tuple") else []
        found = scripts.node_at(given.place) if given.story not in ("comma", "chain") else None  # what is wrong stands elsewhere
        if found is None or not isinstance(found[1], ast.expr):
            return []
        script, node = found
        if given.kind == "list":
            return [_stacked(failed, given, script, node)]
        if given.kind == "object" and not given.parts:
            return [_called_twice(failed, given)]
        return [_part(failed, given, script, node)] if given.kind in ("tuple", "dict", "object") else []


# -- a part of a result ---------------------------------------------------------------------------


def _part(failed: Failed, given: Foreign, script: Script, node: ast.expr) -> Fix | None:
    """`recon = model(x)` → `recon, _, _ = model(x)`, `out = model(x)` → `out = model(x)["logits"]`; where the whole is used, too, at the one use."""
    if failed.operation is None:
        return None
    everything = parts(given, failed.scripts)
    home = failed.scripts.node_at(given.made.place) if given.made is not None else None
    statement = home[0].statement_of(home[1]) if home is not None else None
    target = statement.targets[0] if home is not None and isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.value is home[1] else None
    variable = target.id if isinstance(target, ast.Name) else given.source
    part = meant(everything, failed.operation, given, variable)
    if part is None:
        return None
    title = f"Take the tensor that is meant out of what `{given.maker or given.source}` returns: {_words(part)}."
    others = [_words(other) for other in everything if other is not part]
    meaning = f"Right if {_words(part)} is meant, not {' or '.join(others)}." if others else "It is the only one."
    if home is None or not isinstance(target, ast.Name) or _is_used_whole(home[0], target, everything):
        return failed.scripts.fix(title, script.wrapped(node, part.access), meaning, safe=False)
    if part.access.startswith("[") and given.kind == "tuple" and part.position == 0 and 1 < len(given.shapes) <= 3:
        edits = [home[0].insert(home[0].end(target), ", _" * (len(given.shapes) - 1))]
    else:
        edits = home[0].wrapped(statement.value, part.access)
    return failed.scripts.fix(title, edits, meaning, safe=False)


def _words(part: Part) -> str:
    number = ("the first", "the second", "the third")[part.position] if part.position < 3 else f"number {part.position}"
    shape = f" {list(part.shape)}" if part.shape is not None else ""
    return f"`{part.name}`{shape}" if part.name else f"{number}{shape}"


def _is_used_whole(script: Script, target: ast.Name, everything: list[Part]) -> bool:
    """Some use takes it for what it is: `out[0]`, `out["state"]`, `out.hidden`, `a, b = out`, `return out`."""
    names = {part.name for part in everything}
    own = [n for n in script.own_nodes(script.scope_of(target)) if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)]
    asked = any(isinstance(parent, ast.Attribute) and parent.attr in names or isinstance(parent, (ast.For, ast.comprehension)) for parent in map(script.parent, own))
    return asked or is_taken_apart(script, target)


def _of_batch(failed: Failed, given: Foreign) -> Fix | None:
    """`for x in loader` → `for x, _ in loader`; where the whole batch is used, too, `model(batch[0])`: by convention what comes first is the input."""
    if not given.shapes or given.shapes[0] is None or any(shape == given.shapes[0] for shape in given.shapes[1:]):
        return None
    found = failed.scripts.node_at(given.made.place) if given.made is not None else None
    script = found[0] if found is not None else None
    loop = next((around for around in script.ancestors(found[1]) if isinstance(around, ast.For)), None) if script is not None else None
    names = [n for n in ast.walk(loop.target) if isinstance(n, ast.Name)] if loop is not None else []
    if script is None or loop is None or not names or not any(n is found[1] for n in ast.walk(loop.iter)):
        return None
    target, count = names[-1], len(given.shapes)  # `for k, batch in enumerate(loader)`
    uses = [n for statement in loop.body for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)]
    handed = [n for n in uses if isinstance(call := script.parent(n), ast.Call) and n in call.args]
    title = "A batch holds all parts of the samples, also where that is one: take the first." if count == 1 else f"A batch holds the {count} parts of the samples: take the first."
    meaning = "" if count == 1 else "Right if the first part is the input, as usual."
    if count > 3 or len(uses) == 1 or any(is_taken_apart(script, n) for n in uses):
        return failed.scripts.fix(title, script.wrapped(handed[0], "[0]"), meaning, safe=not meaning) if len(handed) == 1 else None
    text = f"{target.id}{', _' * (count - 1)}" if count > 1 else f"({target.id},)"
    text = f"({text})" if count > 1 and not isinstance(script.parent(target), ast.For) else text
    return failed.scripts.fix(title, [script.replace(target, text)], meaning, safe=not meaning)


# -- a list of tensors ------------------------------------------------------------------------------


def _stacked(failed: Failed, given: Foreign, script: Script, node: ast.expr) -> Fix | None:
    """`torch.mean(losses)` → `torch.mean(torch.stack(losses))`; of more than numbers where the loop says which dimension they count."""
    torch, shape = script.module_name("torch"), given.shapes[0] if given.shapes else None
    if torch is None or shape is None or any(other != shape for other in given.shapes):
        return None
    text = script.segment(node)
    whole = isinstance(failed.call, ast.Call) and called(failed.call) in _OF_ALL and len(failed.call.args) == 1 and not failed.call.keywords
    axis = 0 if not shape or whole else _axis_of_loop(script, node)
    if axis is None or not isinstance(node, (ast.Name, ast.Attribute, ast.List, ast.ListComp)):
        return None
    new = f"{torch}.stack({text}{f', dim={axis}' if axis else ''})"
    size = [*shape[:axis], len(given.shapes) if len(given.shapes) < 8 else "…", *shape[axis:]]
    meaning = "" if not shape else f"They are then one tensor [{', '.join(map(str, size))}]: dimension {axis} counts them, as it does where the loop takes its inputs from."
    return failed.scripts.fix(f"Make one tensor of the list: `{new}`.", [script.replace(node, new)], meaning if not whole else "", safe=not meaning or whole)


def _axis_of_loop(script: Script, node: ast.expr) -> int | None:
    """`for t in range(n): outputs.append(cell(x[:, t]))`: dimension 1, which the loop goes along."""
    appended = [
        n for n in script.own_nodes(script.scope_of(node)) if isinstance(n, ast.Call) and called(n) == "append" and ast.unparse(n.func.value) == ast.unparse(node)
    ]
    loop = next(iter(script.loops_around(appended[0])), None) if len(appended) == 1 else None
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
        return None
    axes = set()
    for n in ast.walk(loop):
        if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load):
            items = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
            axes |= {k for k, item in enumerate(items) if isinstance(item, ast.Name) and item.id == loop.target.id and all(ast.unparse(i) == ":" for i in items[:k])}
    return next(iter(axes)) if len(axes) == 1 else None


# -- what is missing in the program -------------------------------------------------------------------


def _with_return(failed: Failed, given: Foreign) -> Fix | None:
    """`return x` at the end of a `forward` that ends with `x = ...`."""
    script = failed.scripts.get(given.layer_made.place) if given.layer_made is not None else None
    line = given.layer_made.place.span.line if given.layer_made is not None else 0
    functions = [n for n in ast.walk(script.tree) if isinstance(n, Function) and n.lineno == line] if script is not None else []
    if script is None or len(functions) != 1 or any(isinstance(n, (ast.Return, ast.Yield)) for n in script.own_nodes(functions[0])):
        return None
    last = functions[0].body[-1]
    if not script.is_alone_on_line(last):
        return None
    title = f"Return what `{given.maker}` computes"
    if isinstance(last, ast.Assign) and len(last.targets) == 1 and isinstance(last.targets[0], ast.Name):
        name = last.targets[0].id
        return failed.scripts.fix(f"{title}: `return {name}`.", script.after(last, f"return {name}"), f"Right if `{name}`, which it computes last, is its result.", safe=False)
    if isinstance(last, ast.Expr) and isinstance(last.value, (ast.Call, ast.BinOp)) and called(last.value) not in ("print", "append", "update"):
        return failed.scripts.fix(f"{title}: `return {script.segment(last.value)}`.", [script.insert(script.start(last), "return ")], "Right if this, which it computes last, is its result.", safe=False)
    return None


def _called_twice(failed: Failed, given: Foreign) -> Fix | None:
    """`nn.ReLU(x)` → `nn.ReLU()(x)`: the class is made into a layer first."""
    found = failed.scripts.node_at(given.made.place if given.made is not None else given.place)
    call = found[1] if found is not None else None
    if not isinstance(call, ast.Call):
        return None
    return constructed(failed, found[0], call)


# Layers that have neither weights nor a mode, and whose constructors need no argument: a new one for each call is the same.
_PLAIN = ("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh", "Softplus", "Hardtanh", "Hardswish", "Hardsigmoid",
          "LogSigmoid", "Softsign", "Flatten", "Identity")  # fmt: skip
_LOSSES = ("CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "PoissonNLLLoss",
           "CosineEmbeddingLoss", "TripletMarginLoss", "MarginRankingLoss", "CTCLoss", "GaussianNLLLoss")  # fmt: skip


def constructed(failed: Failed, script: Script, call: ast.Call) -> Fix | None:
    """The class of a layer or a loss that was given tensors: made without them, and then called with them."""
    plain, loss = called(call) in _PLAIN and len(call.args) == 1, called(call) in _LOSSES and 2 <= len(call.args) <= 4
    if not (plain or loss) or call.keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    name = called(call)
    what = "layer" if plain else "loss"
    return failed.scripts.fix(f"`{name}` is a class: make the {what}, then call it: `{name}()(...)`.", [script.insert(script.end(call.func), "()")])
