"""Values of a kind that torch refuses: the tuple that a recurrent layer returns, a quotient for a size, history given to numpy."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.construction import OPTIMIZED, initialised_first, of_parameters
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Script, Scripts, called, path_of
from torchsleuth.model import Diagnosis, Fix

_RECURRENT = ("LSTM", "GRU", "RNN")
_FLOAT = re.compile(r"slice indices must be integers|must be tuple of ints, ?(but|not)|must be int(eger)?s?, not float|element of type float|object cannot be interpreted as an integer")
_TUPLE = re.compile(r"must be Tensor, not tuple|unsupported operand type\(s\) for .*'tuple'|'tuple' object has no attribute")


class RefusedArgumentsFixer(Fixer):
    rule = "torch-error"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        if failed.script is None or failed.in_library:
            return []
        if _FLOAT.search(failed.message):
            return [_whole(failed, failed.script)]
        if "before Module.__init__() call" in failed.message:
            return [initialised_first(failed)]
        return [of_parameters(failed)] if OPTIMIZED.search(failed.message) else results_of_layers(failed)


def results_of_layers(failed: Failed) -> list[Fix | None]:
    """The output out of what a layer of torch's returned with its state or its weights."""
    script, call = failed.script, failed.call
    if script is None or failed.in_library or not _TUPLE.search(failed.message):
        return []
    if isinstance(call, ast.Call):
        method = isinstance(call.func, ast.Attribute) and "has no attribute" in failed.message
        nodes = [call.func.value] if method else [*call.args, *(k.value for k in call.keywords)]
    else:
        nodes = [call.left, call.right] if isinstance(call, ast.BinOp) else [call.value] if isinstance(call, ast.Attribute) else []
    fixes = [_first_of(failed, script, node) for node in nodes]
    return fixes if sum(fix is not None for fix in fixes) == 1 else []


def _whole(failed: Failed, script: Script) -> Fix | None:
    """`x.view(b, t, h, d / h)` → `d // h`: the one division in the call, or behind one of its names."""
    call = failed.call
    if isinstance(call, ast.Call):
        parts = [*call.args, *(k.value for k in call.keywords)]
    else:
        parts = [call.slice] if isinstance(call, ast.Subscript) else []
    names = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
    attributes = {path_of(n) for part in parts for n in ast.walk(part) if isinstance(n, ast.Attribute) and path_of(n).startswith("self.")}
    made = [n.value for n in script.own_nodes(script.scope_of(call)) if isinstance(n, ast.Assign) and n.lineno <= call.lineno and {path_of(t) for t in n.targets} & names]
    home = script.class_of(call)
    made += [n.value for n in ast.walk(home) if isinstance(n, ast.Assign) and {path_of(t) for t in n.targets} & attributes] if home is not None else []
    found = [n for part in [*parts, *made] for n in ast.walk(part) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    if len(found) != 1:
        return None
    start, end = script.end(found[0].left), script.start(found[0].right)
    middle = script.between(start, end)
    if middle.count("/") != 1 or "\n" in middle or "#" in middle:
        return None
    at = (start[0], start[1] + middle.index("/"))
    return failed.scripts.fix("Divide to a whole number: `//`.", [script.edit(at, (at[0], at[1] + 1), "//")])


def _first_of(failed: Failed, script: Script, node: ast.expr) -> Fix | None:
    """`x = self.lstm(x)` → `x, _ = self.lstm(x)`; where there is no such statement of its own, `self.lstm(x)[0]`."""
    made = node if isinstance(node, ast.Call) else _assigned(script, node)
    layer = _layer(failed, script, made) if made is not None else ""
    if not layer:
        return None
    other = "the attention weights are" if layer == "MultiheadAttention" else "the last state is"
    meaning = "" if layer == "MultiheadAttention" else "It is the output of every step; where only the last state is wanted, take that."
    title = f"{layer} returns a tuple: take its output, {other} the second part."
    statement = script.statement_of(made)
    if isinstance(node, ast.Name) and isinstance(statement, ast.Assign) and statement.value is made and not is_taken_apart(script, node):
        return failed.scripts.fix(title, [script.insert(script.end(statement.targets[0]), ", _")], meaning, safe=not meaning)
    return failed.scripts.fix(title, script.wrapped(node, "[0]"), meaning, safe=not meaning)


def _assigned(script: Script, node: ast.expr) -> ast.Call | None:
    """The call whose result a variable holds here: of the nearest assignment before it."""
    if not isinstance(node, ast.Name):
        return None
    before = [
        n
        for n in script.own_nodes(script.scope_of(node))
        if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)) and n.lineno < node.lineno and any(_binds(n, node.id))
    ]
    last = max(before, key=lambda n: n.lineno, default=None)
    plain = isinstance(last, ast.Assign) and len(last.targets) == 1 and isinstance(last.targets[0], ast.Name)
    return last.value if plain and isinstance(last.value, ast.Call) else None


def _binds(statement: ast.stmt, name: str) -> list[bool]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [True for target in targets for n in ast.walk(target) if isinstance(n, ast.Name) and n.id == name]


def _layer(failed: Failed, script: Script, call: ast.Call) -> str:
    """The class of the layer that is called: where the file makes it (`self.lstm = nn.LSTM(…)`), or as the run has seen it."""
    name = path_of(call.func)
    made = {
        called(value)
        for n in ast.walk(script.tree)
        if name and isinstance(n, ast.Assign)
        for target, value in _pairs(n)
        if path_of(target) == name
    }
    ran = {o.made.operation.split("_")[0].upper() for o in failed.operands if o.made is not None and o.made.place.span == script.span(call)}
    only = next(iter(made)) if len(made) == 1 else called(call.func) if isinstance(call.func, ast.Call) else next(iter(ran)) if not made and len(ran) == 1 else ""
    return only if only in (*_RECURRENT, "MultiheadAttention") else ""


def _pairs(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """`a, b = f(), g()` one by one."""
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(each, value) for each in statement.targets]


def is_taken_apart(script: Script, node: ast.Name) -> bool:
    """Some other use takes it for the tuple that it is: `x[0]`, `out, state = x`; `x[:, -1]` only tensors have."""
    for other in script.own_nodes(script.scope_of(node)):
        if isinstance(other, ast.Name) and other.id == node.id and isinstance(other.ctx, ast.Load) and other is not node:
            parent = script.parent(other)
            if isinstance(parent, ast.Subscript) and parent.value is other and not isinstance(parent.slice, ast.Tuple) or isinstance(parent, (ast.Assign, ast.Starred, ast.Return)):
                return True
    return False


class NumpyConversionFixer(Fixer):
    rule = "numpy-conversion"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        """`y.numpy()` → `y.detach().numpy()`; of a list of losses the numbers."""
        failed = Failed(evidence, scripts)
        tensor = failed.operation.operands[0] if failed.operation is not None and failed.operation.operands else None
        if tensor is None or failed.in_library or failed.script is None:
            return []
        listed = re.fullmatch(r"([\w.]+)\[\d+\]", tensor.source)
        if listed and isinstance(failed.call, ast.Call):
            return [_of_each(failed, listed[1], tensor.shape == ())]
        grad = "requires grad" in failed.message
        suffix = ".detach()" if grad and tensor.tensor.device == "cpu" else ".detach().cpu()" if grad or tensor.tensor.requires_grad else ".cpu()"
        what = "The values without their history" if grad else "A copy in the computer's memory"
        return [failed.suffixed(tensor, suffix, f"{what}: `{suffix}`.")]


def _of_each(failed: Failed, name: str, numbers: bool) -> Fix | None:
    script = failed.script
    nodes = [node for node in failed.call.args if isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) == name]
    if len(nodes) != 1:
        return None
    text = f"[value{'.item()' if numbers else '.detach().cpu().numpy()'} for value in {name}]"
    return failed.scripts.fix(f"Take the values out of each: `{text}`.", [script.replace(nodes[0], text)])
