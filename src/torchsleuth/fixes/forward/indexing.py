"""Indices of the wrong kind, shape or range, where the evidence says what was meant."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.counting import below, newest, promised
from torchsleuth.fixes.forward.operands import Failed, text_of, truncated
from torchsleuth.fixes.forward.resizing import enlarged
from torchsleuth.fixes.script import Scripts, called, path_of
from torchsleuth.model import Diagnosis, Fix


class IndexDtypeFixer(Fixer):
    rule = "index-dtype"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None:
            return []
        odd = [o for o in failed.operands if o.tensor.dtype.startswith(("float", "bfloat")) and o.argument in ("index", "indices", "input", "self", "")]
        item = next((i for i in operation.index if i.kind == "float"), None)
        if item is not None:
            return [_floor_division(scripts, item)]
        indexed = next((i for i in operation.index if i.kind == "tensor" and i.operand is not None), None)
        if indexed is not None:
            odd = [operation.operands[indexed.operand]]
        elif operation.name in ("gather", "scatter", "scatter_", "index_select", "take", "take_along_dim", "index_add_", "index_add"):
            odd = [o for o in failed.operands if o.argument == "index"]
        elif operation.name == "embedding":
            odd = [o for o in failed.operands if o.argument in ("input", "indices", "self") and o.tensor.kind != "parameter"]
        if len(odd) != 1 or odd[0].tensor.dtype in ("int64", "int32", "bool"):
            return []
        meaning = "Fractions, if there are any, are cut off." if "float" in odd[0].tensor.dtype else ""
        return [failed.suffixed(odd[0], ".long()", f"Indices are integers: `.long()` on {odd[0].called}.", meaning, safe=not meaning)]


def _floor_division(scripts: Scripts, item) -> Fix | None:
    """`len(x) / 2` → `len(x) // 2`, where the index is made."""
    place = item.made.place if item.made is not None else item.place
    script = scripts.get(place)
    node = script.node_at(place.span) if script is not None else None
    if isinstance(node, ast.Assign):
        node = node.value
    if script is None or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return None
    start, end = script.end(node.left), script.start(node.right)
    middle = script.between(start, end)
    if middle.count("/") != 1 or "\n" in middle or "#" in middle:
        return None
    at = (start[0], start[1] + middle.index("/"))
    return scripts.fix("Divide to a whole number: `//`.", [script.edit(at, (at[0], at[1] + 1), "//")])


class MaskShapeFixer(Fixer):
    rule = "mask-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        mask = next((i for i in operation.index if i.operand is not None), None) if operation is not None else None
        chosen = operation.operand("mask", "condition") if operation is not None else None
        if chosen is not None and chosen.tensor.dtype not in ("bool", "uint8"):
            return [failed.suffixed(chosen, ".bool()", f"Make {chosen.called} a mask: `.bool()`.", "Every value but 0 is then True.", safe=False)]
        if operation is None or mask is None:
            return []
        operand = operation.operands[mask.operand]
        base = next((o for o in operation.operands if o is not operand), None)
        if operand.tensor.dtype == "uint8":
            meaning = "They are then positions; as uint8 they are a mask."
            return [failed.suffixed(operand, ".long()", f"Make {operand.called} indices: `.long()`.", meaning, safe=False)]
        found = failed.node_of(operand)
        if base is None or found is None or len(operation.index) != 1 or len(operand.shape) != 1 or not isinstance(failed.call, ast.Subscript):
            return []
        axes = [axis for axis, size in enumerate(base.shape) if size == operand.shape[0]]
        if len(axes) != 1 or axes[0] == 0:
            return []
        text = ", ".join([":"] * axes[0] + [found[0].segment(found[1])])
        meaning = f"The mask then chooses along dimension {axes[0]}, the only one of its size."
        return [scripts.fix(f"Apply the mask to dimension {axes[0]}: `[{text}]`.", [found[0].replace(found[1], text)], meaning, safe=False)]


class IndexShapeFixer(Fixer):
    rule = "index-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is not None and operation.index:
            return [_each_row(failed)]
        if operation is None or operation.name not in ("gather", "take_along_dim", "scatter", "scatter_"):
            return []
        base, index, dim = failed.operand("self", "input"), failed.operand("index", "indices"), operation.argument("dim")
        if base is None or index is None or dim is None or len(dim.numbers) != 1:
            return []
        axis = dim.numbers[0] % len(base.shape) if base.shape else 0
        lacking = len(base.shape) - len(index.shape)
        if lacking > 0 and len(index.shape) == axis + 1 and index.shape[:axis] == base.shape[:axis] and operation.name == "gather" and not _one_for_each(index.shape, base.shape, axis):
            rest, kept = base.shape[len(index.shape) :], ", ".join(["-1"] * len(index.shape))
            suffix = "".join([f"[..., {', '.join(['None'] * lacking)}]", f".expand({kept}, {', '.join(map(str, rest))})"])
            meaning = f"Each index then takes all {' × '.join(map(str, rest))} values that lie at its position."
            return [failed.suffixed(index, suffix, f"The same index for all values at a position: `{suffix}` on {index.called}.", meaning, safe=False)]
        if len(index.shape) == len(base.shape) - 1 and all(a <= b for a, b in zip(index.shape, base.shape[:axis] + base.shape[axis + 1 :], strict=True)):
            column = failed.suffixed(index, f".unsqueeze({axis})", f"One index for each: `.unsqueeze({axis})` on {index.called}.")
            return [_as_many_as_indices(failed, index, axis), column] if operation.name in ("gather", "take_along_dim") else [column]
        return []


def _as_many_as_indices(failed: Failed, index: Operand, axis: int) -> Fix | None:
    """`q.gather(1, a)` → `q.gather(1, a.unsqueeze(1)).squeeze(1)`: the result has the shape of the index, and no column that meets
    vectors later, and is broadcast with them. Not where the program drops that dimension itself, or works with columns there."""
    found, script, call = failed.node_of(index), failed.script, failed.call
    if found is None or script is None or found[0] is not script or not isinstance(call, ast.Call):
        return None
    if any(_is_of_columns(node) for node in script.own_nodes(script.scope_of(call)) if getattr(node, "lineno", 0) >= call.lineno):
        return None
    edits = script.wrapped(found[1], f".unsqueeze({axis})")
    title = f"One index for each, and one value for each of them: `.unsqueeze({axis})` on {index.called}, `.squeeze({axis})` on what comes of it."
    return failed.scripts.fix(title, script.followed(edits, script.end(call), f".squeeze({axis})"))


def _is_of_columns(node: ast.AST) -> bool:
    """Something that makes columns, or takes them for such: `.squeeze(1)`, `.unsqueeze(1)`, `.view(-1, 1)`, `x[:, None]`, `x[:, 0]`, `keepdim=True`."""
    if isinstance(node, ast.Call):
        shaped = called(node) in ("view", "reshape") and len(node.args) > 1 and isinstance(node.args[-1], ast.Constant) and node.args[-1].value == 1
        return shaped or called(node) in ("squeeze", "unsqueeze", "flatten") or any(keyword.arg == "keepdim" for keyword in node.keywords)
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and any(isinstance(item, ast.Constant) and item.value in (None, 0) for item in node.slice.elts)


def _each_row(failed: Failed) -> Fix | None:
    """`x[rows, picks]` → `x[rows[:, None], picks]`, for rows that count the rows of `picks`."""
    tensors = [failed.operation.operands[item.operand] for item in failed.operation.index if item.operand is not None]
    if len(tensors) != 2 or len(tensors) != len(failed.operation.index):
        return None
    one, other = sorted(tensors, key=lambda operand: len(operand.shape))
    if len(one.shape) != 1 or len(other.shape) != 2 or one.shape[0] != other.shape[0] or one.made is None or one.made.operation != "arange":
        return None
    meaning = f"Each row of {other.called} then chooses from the row that {one.called} has at its place."
    return failed.suffixed(one, "[:, None]", f"One row for each row of {other.called}: `[:, None]`.", meaning, safe=False)


def _one_for_each(index: tuple[int, ...], base: tuple[int, ...], axis: int) -> bool:
    return index == base[:axis] + base[axis + 1 :]


class IndexOutOfRangeFixer(Fixer):
    rule = "index-out-of-range"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None:
            return []
        if not operation.operands:
            return [_length_of_list(failed)]
        table, config = operation.operand("weight"), dict(operation.config)
        limits = (config.get("max_position_embeddings"), config.get("n_positions"))
        positions = truncated(failed) if table is not None and table.shape and table.shape[0] in limits else None
        if operation.module_type.endswith("Embeddings"):
            positions = truncated(failed)
        reserved = any(argument.name == "padding_idx" and argument.numbers == (0,) for argument in operation.arguments)
        counted = [_from_one(failed)] if not reserved else []
        return [_loop_bound(failed), promised(failed), newest(failed), below(failed), positions, _added_tokens(failed), *counted, *_more_rows(failed)]


def _more_rows(failed: Failed) -> list[Fix | None]:
    """`nn.Embedding(len(vocab), dim)` → `nn.Embedding(len(vocab) + 1, dim)`, a table of positions for the length that is asked for."""
    operation = failed.operation
    table, ids = operation.operand("weight"), operation.operand("input", "indices")
    values = ids.values if ids is not None else None
    if operation.name != "embedding" or operation.module_type != "Embedding" or table is None or values is None or failed.in_library or values.minimum < 0:
        return []
    rows, needed = table.shape[0], int(values.maximum) + 1
    positions = ids.made is not None and ids.made.operation in ("arange", "expand", "unsqueeze", "repeat") and values.kinds == needed
    # A table that is far too small is no miscount: the ids are another table's.
    if needed > (64 * rows if positions else rows + max(8, rows // 4)):
        return []
    if positions:
        title, meaning = f"Make the table long enough for {needed} positions", f"Right if sequences of {needed} are meant; the table's new rows are trained only by those. Else cut them to {rows}."
    else:
        title, meaning = "Make the table large enough", f"Right if {needed - 1} is an id that is meant; if it is not, correct it where it is made."
    return enlarged(failed, ("Embedding",), 0, "num_embeddings", rows, needed, title, meaning, table.origin_of(0))


def _loop_bound(failed: Failed) -> Fix | None:
    """`for i in range(4)` over a tensor with three rows: the bound taken from the tensor."""
    item = next((i for i in failed.operation.index if i.made is not None and i.made.operation == "loop" and i.axis is not None), None)
    base = failed.operation.operands[0] if failed.operation.operands else None
    name = text_of(base)
    script = failed.script
    if item is None or base is None or not name or script is None or not isinstance(failed.call, ast.Subscript):
        return None
    for loop in script.loops_around(failed.call):
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Name) and target.id == item.source and called(loop.iter) == "range" and len(loop.iter.args) == 1:
            bound = f"{name}.shape[{item.axis}]"
            meaning = f"The loop then makes {item.size} rounds, one for each position of dimension {item.axis}."
            return failed.scripts.fix(f"Take the bound from the tensor: `range({bound})`.", [script.replace(loop.iter.args[0], bound)], meaning, safe=False)
    return None


def _length_of_list(failed: Failed) -> Fix | None:
    """`for i in range(3): x = layers[i](x)` with two layers: the bound taken from the list."""
    script, call = failed.script, failed.call
    if script is None or failed.in_library or not isinstance(call, ast.Subscript) or not isinstance(call.slice, ast.Name) or not path_of(call.value):
        return None
    for loop in script.loops_around(call):
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Name) and target.id == call.slice.id and called(loop.iter) == "range" and len(loop.iter.args) == 1:
            bound = f"len({path_of(call.value)})"
            meaning = f"The loop then makes as many rounds as `{path_of(call.value)}` has elements."
            return failed.scripts.fix(f"Take the bound from the list: `range({bound})`.", [script.replace(loop.iter.args[0], bound)], meaning, safe=False)
    return None


def _from_one(failed: Failed) -> Fix | None:
    """Ids that run from 1 to the size of the table."""
    operand = next((o for o in failed.operation.operands if o.values is not None and o.values.bad), None)
    if operand is None or operand.values is None or failed.in_library or failed.operation.name not in ("embedding", "gather", "index_select"):
        return None
    values = operand.values
    if not values.counts_from_one:
        return None
    found = failed.node_of(operand)
    if found is None or not isinstance(found[1], (ast.Name, ast.Attribute)):
        return None
    text = f"{found[0].segment(found[1])} - 1"
    meaning = "Id 1 then is the first row of the table, number 0."
    return failed.scripts.fix(f"Count from 0: `{text}`.", [found[0].replace(found[1], text)], meaning, safe=False)


def _added_tokens(failed: Failed) -> Fix | None:
    """`model.resize_token_embeddings(len(tokenizer))` after tokens were added."""
    script = failed.script
    operand = next((o for o in failed.operation.operands if o.values is not None and o.values.bad), None)
    if script is None or operand is None or operand.values is None or not failed.in_library or failed.operation.name != "embedding":
        return None
    if operand.values.minimum < operand.values.low or "token_type" in failed.operation.module or "position" in failed.operation.module:
        return None
    adds = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node) in ("add_tokens", "add_special_tokens") and isinstance(node.func, ast.Attribute)
    ]
    models = failed.operation.module.split(".")[0]
    if len(adds) != 1 or not models.isidentifier():
        return None
    tokenizer = ast.unparse(adds[0].func.value)
    bound = [n for n in ast.walk(script.tree) if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == models for t in n.targets)]
    after = max([script.statement_of(adds[0]), *bound], key=lambda node: node.lineno)
    if len(bound) != 1 or script.block_of(bound[0]) is not script.block_of(script.statement_of(adds[0])):
        return None
    line = f"{models}.resize_token_embeddings(len({tokenizer}))"
    return failed.scripts.fix("Make rows for the added tokens.", script.after(after, line), "The new rows start with random values and have to be trained.", safe=False)
