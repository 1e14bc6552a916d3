"""Sequences of unequal lengths that are to be one tensor: padded, where a list is stacked or a DataLoader makes its batches."""

from __future__ import annotations

import ast

from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Function, Script, called
from torchsleuth.model import Fix

_MEANING = "The shorter ones are filled up with zeros at the end, which the model then has to leave out (a mask, `padding_idx`, `ignore_index`)."


def padded_list(failed: Failed) -> Fix | None:
    """`torch.stack(rows)` → `torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)`."""
    script, call = failed.script, failed.call
    torch = script.module_name("torch") if script is not None else None
    if torch is None or failed.in_library or not isinstance(call, ast.Call) or called(call) != "stack" or not isinstance(call.func, ast.Attribute):
        return None
    dims = [*call.args[1:], *(k.value for k in call.keywords)]
    if not call.args or len(dims) > 1 or any(not isinstance(dim, ast.Constant) or dim.value != 0 for dim in dims) or not _are_sequences(failed.operation.operands):
        return None
    edits = [script.replace(call.func, f"{torch}.nn.utils.rnn.pad_sequence")]
    edits += [script.edit(script.end(call.args[0]), _inner_end(script, call), ", batch_first=True")]
    return failed.scripts.fix("Pad them to one length: `pad_sequence`.", edits, _MEANING, safe=False)


def padded_batches(failed: Failed) -> Fix | None:
    """A `collate_fn` for the DataLoaders of the file, for samples that are tuples, dictionaries, or single tensors, of unequal length."""
    script, made = failed.script, failed.operation.sample_made
    home = failed.scripts.get(made.place) if made is not None else None
    torch = script.module_name("torch") if script is not None else None
    if home is None or script is None or torch is None or not failed.operation.sample or not _are_sequences(failed.operation.operands):
        return None
    kind = _returned(home, home.node_at(made.place.span))
    calls = [n for n in ast.walk(script.tree) if isinstance(n, ast.Call) and called(n) == "DataLoader" and n.args]
    datasets = [n for file in dict.fromkeys((home, script)) for n in ast.walk(file.tree) if isinstance(n, Function) and n.name == "__getitem__"]
    # Of several loaders all get it where all have samples of one kind; for those of one length it changes nothing.
    if kind is None or not calls or len(calls) > 1 and len(datasets) > 1 or any(not _takes_another(call) for call in calls):
        return None
    statement = _before_all(script, calls)
    if statement is None or "pad_batch" in script.source.text or not script.is_alone_on_line(statement) and not hasattr(statement, "body"):
        return None
    lines = _collating(kind, torch, script.indent_step())
    edits = [*script.before(statement, *lines)]
    edits += [script.insert(max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)]), ", collate_fn=pad_batch") for call in calls]
    return failed.scripts.fix("Pad the samples of a batch to one length: `collate_fn=pad_batch`.", edits, _MEANING, safe=False)


def _takes_another(call: ast.Call) -> bool:
    """A DataLoader that has no `collate_fn` yet, as far as can be read."""
    return len(call.args) <= 6 and not any(isinstance(a, ast.Starred) for a in call.args) and not any(k.arg in ("collate_fn", None) for k in call.keywords)


def _before_all(script: Script, calls: list[ast.Call]) -> ast.stmt | None:
    """The statement before which a function is known to all these calls: the first, or what holds it at the top of the file."""
    statements = [script.statement_of(call) for call in calls]
    if any(statement is None for statement in statements):
        return None
    if all(script.block_of(statement) is script.block_of(statements[0]) for statement in statements):
        return min(statements, key=lambda statement: statement.lineno)
    return next((top for top in script.tree.body if any(call is n for call in calls for n in ast.walk(top))), None)


def _collating(kind: str, torch: str, step: str) -> list[str]:
    pad, other = f"{torch}.nn.utils.rnn.pad_sequence", f"{torch}.utils.data.default_collate"
    column = f"{pad}(c, batch_first=True) if isinstance(c[0], {torch}.Tensor) and c[0].dim() else {other}(c)"
    bodies = {
        "tensor": [f"return {pad}(samples, batch_first=True)"],
        "tuple": ["columns = zip(*samples)", f"return [{column} for c in columns]"],
        "dict": ["columns = {name: [sample[name] for sample in samples] for name in samples[0]}", f"return {{name: {column} for name, c in columns.items()}}"],
    }
    return ["def pad_batch(samples):", *(f"{step}{line}" for line in bodies[kind])]


def _are_sequences(operands: tuple[Operand, ...]) -> bool:
    """They differ in their first size only, and not as one odd one among equals does."""
    tensors = [operand for operand in operands if operand.argument != "out"]
    if len(tensors) < 2 or any(not operand.shape for operand in tensors) or len({operand.shape[1:] for operand in tensors}) != 1:
        return False
    lengths = [operand.shape[0] for operand in tensors]
    usual = max(lengths.count(length) for length in lengths)
    # Images and samples of a table have one size: there a difference is a mistake in the data.
    return len(tensors[0].shape) <= 2 and len(set(lengths)) > 1 and (len(tensors) == 2 or usual < len(tensors) - 1)


def _returned(script: Script, node: ast.AST | None) -> str | None:
    """What `__getitem__` around a node returns: "tuple", "dict", "tensor", or None where it cannot be told."""
    function = next((a for a in script.ancestors(node) if isinstance(a, Function)), None) if node is not None else None
    if function is None or function.name != "__getitem__":
        return None
    values = [n.value for n in script.own_nodes(function) if isinstance(n, ast.Return)]
    if values and all(isinstance(value, ast.Tuple) for value in values):
        return "tuple"
    if len(values) == 1 and isinstance(values[0], ast.Dict):
        return "dict"
    if len(values) == 1 and isinstance(values[0], ast.Name):  # `spec = torch.randn(…)`, `return spec`
        values = [n.value for n in script.own_nodes(function) if isinstance(n, ast.Assign) and [ast.unparse(t) for t in n.targets] == [values[0].id]]
        if len(values) == 1 and isinstance(values[0], ast.Dict):  # `item = {"ids": …}`, `return item`
            return "dict"
    return "tensor" if len(values) == 1 and values[0] is node else None


def _inner_end(script: Script, call: ast.Call) -> tuple[int, int]:
    last = [*call.args, *(k.value for k in call.keywords)]
    return max(script.end(item) for item in last)
