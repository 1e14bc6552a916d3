"""Changes to how a model is built: a layer put in between, an attention layer told how wide its keys are."""

from __future__ import annotations

import ast

from torchsleuth.evidence_forward import Made
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.forward.resizing import Link, argument_of, is_in_a_loop, number_in, producer_of
from torchsleuth.fixes.script import Function, Script, called
from torchsleuth.model import Fix


def flatten_between(failed: Failed, start: int, features: int) -> Fix | None:
    """`nn.Sequential(..., nn.Linear(32, 10))` → `..., nn.Flatten(), nn.Linear(32, 10)`, where the layer is given what is not flat."""
    made = failed.operation.module_made if failed.operation is not None else None
    found = failed.scripts.node_at(made.place) if made is not None else None
    if found is None or not isinstance(found[1], ast.Call) or called(found[1]) != "Linear" or is_in_a_loop(*found):
        return None
    script, layer = found
    around = script.parent(layer)
    if not isinstance(layer.func, ast.Attribute) or not isinstance(around, ast.Call) or called(around) != "Sequential" or layer not in around.args:
        return None
    flatten = f"{script.segment(layer.func.value)}.Flatten({'' if start == 1 else start})"
    line, column = script.start(layer)
    before = script.source.lines[line - 1][: column - 1]
    gap = f"\n{before}" if not before.strip() else " "
    return failed.scripts.fix(f"Flatten to the {features} numbers that the layer takes: `{flatten}` before it.", [script.insert((line, column), f"{flatten},{gap}")])


def other_width(failed: Failed) -> Fix | None:
    """`nn.MultiheadAttention(d, heads)` → `…, kdim=n, vdim=n`, for keys and values of one width that is not the queries'."""
    operation = failed.operation
    made = operation.module_made if operation is not None else None
    found = failed.scripts.node_at(made.place) if made is not None else None
    call = found[1] if found is not None else None
    if operation is None or not isinstance(call, ast.Call) or called(call) != "MultiheadAttention" or not call.args:
        return None
    given = {o.argument: o for o in (*operation.call_operands, *operation.operands) if o.argument in ("query", "key", "value")}
    query, key = given.get("query"), given.get("key")
    values = given.get("value", key)
    width = next((origin.size for origin in operation.module_sizes if origin.axis == 1), 0)
    if query is None or key is None or not query.shape or query.shape[-1] != width or key.shape[-1] == width or values.shape[-1] != key.shape[-1]:
        return None
    if any(k.arg in ("kdim", "vdim", None) for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args) or is_in_a_loop(found[0], call):
        return None
    script, size = found[0], key.shape[-1]
    producer = producer_of(failed.scripts, key.origin_of(-1))
    given_for = next((origin.made for origin in operation.module_sizes if origin.size == width), made)
    text = (producer.text_beside(Link(script, call.args[0])) if producer is not None else "") or _unused(failed, script, call, given_for, size) or str(size)
    last = max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)])
    meaning = f"Its queries have {width} features, the keys and values {size}; without this all are taken for {width}."
    return failed.scripts.fix(f"Tell the layer how wide its keys and values are: `kdim={text}, vdim={text}`.", [script.insert(last, f", kdim={text}, vdim={text}")], meaning, safe=False)


def _unused(failed: Failed, script: Script, call: ast.Call, made: Made | None, size: int) -> str:
    """A parameter of the constructor around it that nothing uses, and for which its caller gives just this number."""
    scope = script.scope_of(call)
    outer = failed.scripts.node_at(made.given.place) if made is not None and made.given is not None else None
    caller = outer[0].parent(outer[1]) if outer is not None else None
    if not isinstance(scope, Function) or not isinstance(caller, ast.Call):
        return ""
    names = [argument.arg for argument in scope.args.args]
    used = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name)}
    fitting = [name for k, name in enumerate(names) if name not in used and number_in(argument_of(caller, k - 1, name)) == size]
    return fitting[0] if len(fitting) == 1 else ""
