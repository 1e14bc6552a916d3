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
    """A `collate_fn` for the one DataLoader of the file, for samples that are tuples, or single tensors, of unequal length."""
    script, made = failed.script, failed.operation.sample_made
    home = failed.scripts.get(made.place) if made is not None else None
    torch = script.module_name("torch") if script is not None else None
    if home is None or torch is None or not failed.operation.sample or not _are_sequences(failed.operation.operands):
        return None
    kind = _returned(home, home.node_at(made.place.span))
    calls = [n for n in ast.walk(script.tree) if isinstance(n, ast.Call) and called(n) == "DataLoader" and n.args and not any(isinstance(a, ast.Starred) for a in n.args)]
    if kind is None or len(calls) != 1 or any(k.arg in ("collate_fn", None) for k in calls[0].keywords) or len(calls[0].args) > 6:
        return None
    statement = script.statement_of(calls[0])
    if statement is None or "pad_batch" in script.source.text or not script.is_alone_on_line(statement) and not hasattr(statement, "body"):
        return None
    step = script.indent_step()
    pad, other = f"{torch}.nn.utils.rnn.pad_sequence", f"{torch}.utils.data.default_collate"
    lines = ["def pad_batch(samples):", f"{step}return {pad}(samples, batch_first=True)"]
    if kind == "tuple":
        lines = [
            "def pad_batch(samples):",
            f"{step}columns = zip(*samples)",
            f"{step}return [{pad}(c, batch_first=True) if isinstance(c[0], {torch}.Tensor) and c[0].dim() else {other}(c) for c in columns]",
        ]
    last = max(script.end(item) for item in [*calls[0].args, *(k.value for k in calls[0].keywords)])
    edits = [*script.before(statement, *lines), script.insert(last, ", collate_fn=pad_batch")]
    return failed.scripts.fix("Pad the samples of a batch to one length: `collate_fn=pad_batch`.", edits, _MEANING, safe=False)


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
    """What `__getitem__` around a node returns: "tuple", "tensor", or None where it cannot be told."""
    function = next((a for a in script.ancestors(node) if isinstance(a, Function)), None) if node is not None else None
    if function is None or function.name != "__getitem__":
        return None
    values = [n.value for n in script.own_nodes(function) if isinstance(n, ast.Return)]
    if values and all(isinstance(value, ast.Tuple) for value in values):
        return "tuple"
    if len(values) == 1 and isinstance(values[0], ast.Name):  # `spec = torch.randn(…)`, `return spec`
        values = [n.value for n in script.own_nodes(function) if isinstance(n, ast.Assign) and [ast.unparse(t) for t in n.targets] == [values[0].id]]
    return "tensor" if len(values) == 1 and values[0] is node else None


def _inner_end(script: Script, call: ast.Call) -> tuple[int, int]:
    last = [*call.args, *(k.value for k in call.keywords)]
    return max(script.end(item) for item in last)
