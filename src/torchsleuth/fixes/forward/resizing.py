"""A layer built for another size than it is given: its constructor's number, where that is written out."""

from __future__ import annotations

import ast

from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import called
from torchsleuth.model import Fix


def doubled(failed: Failed, keyword: str, position: int, size: int, now: int) -> Fix | None:
    """`nn.Linear(hidden, n)` → `nn.Linear(2 * hidden, n)`, behind a recurrent layer that reads in both directions."""
    made = failed.operation.module_made if failed.operation is not None else None
    script = failed.scripts.get(made.place) if made is not None else None
    call = script.node_at(made.place.span) if script is not None else None
    if script is None or not isinstance(call, ast.Call) or size != 2 * now:
        return None
    given = next((k.value for k in call.keywords if k.arg == keyword), call.args[position] if position < len(call.args) else None)
    if not isinstance(given, (ast.Name, ast.Attribute)):
        return None
    text = f"2 * {script.segment(given)}"
    return failed.scripts.fix(f"Build the layer for both directions: `{text}`.", [script.replace(given, text)], "", safe=False)


def resized(failed: Failed, layers: tuple[str, ...], position: int, keyword: str, size: int, words: str) -> Fix | None:
    """`nn.Linear(32, 2)` → `nn.Linear(16, 2)`. Only where the number stands there as such."""
    made = failed.operation.module_made if failed.operation is not None else None
    script = failed.scripts.get(made.place) if made is not None else None
    call = script.node_at(made.place.span) if script is not None else None
    if script is None or not isinstance(call, ast.Call) or called(call) not in layers:
        return None
    given = next((k.value for k in call.keywords if k.arg == keyword), call.args[position] if position < len(call.args) else None)
    if given is None or any(not isinstance(n, (ast.Constant, ast.BinOp, ast.operator)) for n in ast.walk(given)):
        return None
    try:
        now = eval(compile(ast.Expression(given), "", "eval"), {"__builtins__": {}})  # a product of numbers, nothing else
    except Exception:
        return None
    if not isinstance(now, int) or now == size or size <= 0:
        return None
    meaning = f"Right if the layer was built for the wrong size; if {size} {words} is what is wrong, change that instead."
    return failed.scripts.fix(f"Build the layer for the {size} {words} it is given.", [script.replace(given, str(size))], meaning, safe=False)
