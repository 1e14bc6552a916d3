"""Indices that count too far: the samples a dataset promises, a text that grows past the positions, a random number whose end is counted in."""

from __future__ import annotations

import ast

from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Script, called, names_in, path_of
from torchsleuth.model import Fix


def promised(failed: Failed) -> Fix | None:
    """`self.series[i + self.size]` with a `__len__` that does not leave room for it: `len(self.series) - self.size`."""
    item = next((item for item in failed.operation.index if item.sample is not None and item.promised is not None), None)
    base = failed.operation.operands[0] if failed.operation.operands else None
    if item is None or item.sample is None or base is None or not base.source.startswith("self.") or not base.source.replace(".", "").replace("_", "").isalnum():
        return None
    found = failed.scripts.node_at(item.promised.place)
    terms = _terms(ast.parse(item.sample[2], mode="eval").body, 1)
    rest = [(sign, text) for sign, text in terms if text != item.sample[0]]
    if found is None or not isinstance(found[1], ast.expr) or not rest or any(names_in(ast.parse(text)) - {"self", "len"} for _, text in rest):
        return None
    length = f"len({base.source})" if item.axis == 0 else f"{base.source}.shape[{item.axis}]"
    text = length + "".join(f" {'-' if sign > 0 else '+'} {term}" for sign, term in rest)
    return failed.scripts.fix(f"Promise as many samples as there are: `{text}`.", [found[0].replace(found[1], text)], "The samples past the end are left out.", safe=False)


def whole_slices(failed: Failed) -> Fix | None:
    """`self.series[i : i + self.size]` with a `__len__` that counts slices which are cut off: `len(self.series) - self.size + 1`."""
    cut = failed.operation.cut_short
    found = failed.scripts.node_at(cut.promised.place) if cut is not None else None
    if cut is None or found is None or not isinstance(found[1], ast.expr):
        return None
    terms = "".join(f" + {term[1:]}" if term.startswith("-") else f" - {term}" for term in cut.terms)
    text = f"len({cut.base}){terms} + 1"
    return failed.scripts.fix(f"Promise as many samples as are whole: `{text}`.", [found[0].replace(found[1], text)], "Those at the end that would be cut off are left out.", safe=False)


def _terms(node: ast.expr, sign: int) -> list[tuple[int, str]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [*_terms(node.left, sign), *_terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)]
    text = ast.unparse(node)
    return [(sign, f"({text})" if isinstance(node, (ast.IfExp, ast.BoolOp, ast.Compare, ast.Lambda)) else text)]


def newest(failed: Failed) -> Fix | None:
    """`ids = torch.cat([ids, new], dim=1)` in a loop of `logits = model(ids)`: the model is given the newest that it has positions for."""
    table, index = failed.operation.operand("weight"), failed.operation.operand("input", "indices")
    made = index.value_made if index is not None else None
    if table is None or not table.shape or index is None or made is None or made.operation != "arange" or failed.operation.name != "embedding":
        return None
    grown = made.given or index.origin_of(-1)
    found = failed.scripts.node_at(grown.place) if grown is not None else None
    if found is None or called(found[1]) not in ("cat", "concat", "concatenate") or failed.in_library:
        return None
    script, joining = found
    statement = script.statement_of(joining)
    names = [path_of(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    loops = script.loops_around(joining)
    if len(names) != 1 or not loops or names[0] not in {path_of(node) for node in ast.walk(joining)}:
        return None
    calls = [node for node in ast.walk(loops[0]) if isinstance(node, ast.Call) and node is not joining and len(node.args) == 1 and path_of(node.args[0]) == names[0]]
    if len(calls) != 1 or not script.is_alone_on_line(script.statement_of(calls[0])):
        return None
    rows = table.shape[0]
    meaning = f"Of a longer text the newest {rows} are then used."
    return failed.scripts.fix(f"Give the model no more than its {rows} positions: `{names[0]}[:, -{rows}:]`.", script.wrapped(calls[0].args[0], f"[:, -{rows}:]"), meaning, safe=False)


def below(failed: Failed) -> Fix | None:
    """`random.randint(0, n)`, which includes n, for an index of n places."""
    operand = next((o for o in failed.operation.operands if o.values is not None and o.values.bad), None)
    made = operand.value_made if operand is not None else None
    while made is not None and made.given is not None:
        made = made.given
    found = failed.scripts.node_at(made.place) if made is not None else None
    if operand is None or operand.values is None or found is None or operand.values.maximum != operand.values.high + 1:
        return None
    script, call = found
    if not includes_its_end(script, call):
        return None
    end = call.args[1]
    plain = isinstance(end, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    text = str(end.value - 1) if isinstance(end, ast.Constant) and type(end.value) is int else f"{script.segment(end) if plain else script.closed(end)} - 1"
    meaning = f"`randint` of the module `random` may return its second argument; {int(operand.values.high) + 1} numbers from 0 on end with {int(operand.values.high)}."
    return failed.scripts.fix(f"End one earlier: `{text}`.", [script.replace(end, text)], meaning, safe=False)


def includes_its_end(script: Script, call: ast.AST) -> bool:
    """`random.randint(a, b)` and that of a `random.Random`; torch's and numpy's end before b, and are given more."""
    if not isinstance(call, ast.Call) or called(call) != "randint" or len(call.args) != 2 or call.keywords:
        return False
    owner = path_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner and owner == script.module_name("random"):
        return True
    made = {called(node.value) for node in ast.walk(script.tree) if isinstance(node, ast.Assign) and any(path_of(target) == owner for target in node.targets)}
    return bool(owner) and made == {"Random"}
