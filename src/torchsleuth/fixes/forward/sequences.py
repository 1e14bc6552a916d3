"""Joining, masking and recurrent states: the edits that the shapes single out."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, loader_drops_last, text_of, truncated
from torchsleuth.fixes.forward.resizing import resized
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.forward.attention_mask import batch_first_missing


class CatShapeFixer(Fixer):
    rule = "cat-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation, script, call = failed.operation, failed.script, failed.call
        numbers = re.search(r"expected Tensor as element \d+ in argument \d+, but got (int|float|bool)", failed.message)
        if numbers and script is not None and isinstance(call, ast.Call) and called(call) == "stack" and len(call.args) == 1 and not call.keywords:
            return [scripts.fix("`tensor` makes a tensor of Python numbers; `stack` joins tensors.", failed.renamed(call, "tensor"))]
        if operation is None or script is None or not isinstance(call, ast.Call) or operation.name not in ("cat", "concat", "concatenate"):
            return []
        shapes = [operand.shape for operand in operation.operands]
        if shapes and all(shape == () for shape in shapes) and len(call.args) == 1 and not call.keywords:
            return [scripts.fix("`stack` makes one tensor of single numbers; `cat` joins along a dimension that is there.", failed.renamed(call, "stack"))]
        if len(shapes) < 2 or len({len(shape) for shape in shapes}) != 1:
            return [_one_more_row(failed), _without_ones(failed)]
        axes = [axis for axis in range(len(shapes[0])) if len({shape[axis] for shape in shapes}) > 1]
        larger = _as_large(failed)
        if larger is not None:
            return [larger]
        if len(axes) != 1 or _is_one_odd([shape[axes[0]] for shape in shapes]):
            return []
        given = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), call.args[1] if len(call.args) > 1 else None)
        if given is not None:
            edits = [script.replace(given, str(axes[0]))]
        else:
            edits = [script.insert(script.end(call.args[0]), f", dim={axes[0]}")] if len(call.args) == 1 else []
        meaning = f"They are then joined along dimension {axes[0]}, the only one in which they differ."
        return [scripts.fix(f"Join along dimension {axes[0]}: `dim={axes[0]}`.", edits, meaning, safe=False)]


def _is_one_odd(sizes: list[int]) -> bool:
    """One among several that agree, or one grey image beside a coloured one: the dimension is right, that tensor is not."""
    usual = max(set(sizes), key=sizes.count)
    return len(sizes) > 2 and sizes.count(usual) == len(sizes) - 1 or 1 in sizes and len(set(sizes)) == 2


def _as_large(failed: Failed) -> Fix | None:
    """Two feature maps that went apart where one was halved and doubled again: the smaller one resized to the larger."""
    operands, script = failed.operation.operands, failed.script
    torch = script.module_name("torch")
    if len(operands) != 2 or torch is None or failed.in_library or not 3 <= len(operands[0].shape) <= 5:
        return None
    small, large = sorted(operands, key=lambda operand: operand.shape[2:])
    places = [small.shape[0] == large.shape[0], all(0 <= b - a < 4 and a > 1 for a, b in zip(small.shape[2:], large.shape[2:], strict=True))]
    given = next((k.value for k in failed.call.keywords if k.arg in ("dim", "axis")), failed.call.args[1] if len(failed.call.args) > 1 else None)
    along = given.value % len(small.shape) if isinstance(given, ast.Constant) and isinstance(given.value, int) else None
    found = failed.node_of(small)
    if not all(places) or along != 1 or small.shape[2:] == large.shape[2:] or found is None or not text_of(large):
        return None
    text = f"{torch}.nn.functional.interpolate({script.segment(found[1])}, size={text_of(large)}.shape[2:])"
    meaning = f"{small.called} {list(small.shape)} is then resized by its nearest neighbours; images whose sizes halve without a rest would need none of it."
    return failed.scripts.fix(f"Resize {small.called} to the size of {large.called}.", [script.replace(found[1], text)], meaning, safe=False)


def _without_ones(failed: Failed) -> Fix | None:
    """`[batch, channels, 1, 1]` beside `[batch, features]`: what pooling to one pixel leaves, flattened."""
    operands = failed.operation.operands
    if len(operands) != 2 or len({len(operand.shape) for operand in operands}) != 2:
        return None
    short, long = sorted(operands, key=lambda operand: len(operand.shape))
    if len(short.shape) != 2 or long.shape[0] != short.shape[0] or set(long.shape[2:]) != {1}:
        return None
    return failed.suffixed(long, ".flatten(1)", f"Drop the dimensions of size 1: `.flatten(1)` on {long.called}.")


def _one_more_row(failed: Failed) -> Fix | None:
    """`torch.cat((rows, row))`: the odd one gets the dimension along which they are joined."""
    call, operands = failed.call, failed.operation.operands
    rank = max((len(operand.shape) for operand in operands), default=0)
    if rank == 0:  # nothing is known of the tensors
        return None
    odd = [operand for operand in operands if len(operand.shape) == rank - 1]
    given = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), call.args[1] if len(call.args) > 1 else ast.Constant(0))
    axis = given.value % rank if isinstance(given, ast.Constant) and isinstance(given.value, int) else None
    if len(odd) != 1 or len(odd) + sum(len(operand.shape) == rank for operand in operands) != len(operands) or axis is None:
        return None
    others = {operand.shape[:axis] + operand.shape[axis + 1 :] for operand in operands if len(operand.shape) == rank}
    if others != {odd[0].shape}:
        return None
    meaning = f"{odd[0].called} is then one more entry along dimension {axis}."
    return failed.suffixed(odd[0], f".unsqueeze({axis})", f"Add the dimension they are joined along: `.unsqueeze({axis})`.", meaning, safe=False)


class ExpandSizeFixer(Fixer):
    rule = "expand-size"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        return [truncated(Failed(evidence, scripts))]


class RecurrentStateFixer(Fixer):
    rule = "recurrent-state"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.script is None:
            return []
        if "must be sorted in decreasing order" in failed.message:
            return [_unsorted(failed)]
        data = failed.operand("input", "self")
        if data is not None and "input.size(-1)" in failed.message:
            return [resized(failed, ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"), 0, "input_size", data.shape[-1], "features")]
        batch_first = _reads_batch_first(failed)
        if batch_first is not None:
            return [batch_first]
        fewer = loader_drops_last(scripts, failed.script, "The last, smaller batch is then not used at all.")
        if data is not None and any(o.argument.startswith("hx[") for o in operation.operands):
            return [_left_out(failed), fewer]
        state = next((o for o in failed.operands if len(o.shape) == 3 and o is not data and o.argument in ("hx", "hidden", "h_0", "state", "h0")), None)
        if data is None or state is None or not text_of(data) or len(data.shape) != 3:
            return []
        axis = next((axis for axis in (0, 1) if data.shape[axis] < state.shape[1] and f"{data.shape[axis]}, " in failed.message), None)
        if axis is None:
            return []
        suffix = f"[:, :{text_of(data)}.size({axis})].contiguous()"
        meaning = f"Of the state, the first {data.shape[axis]} of {state.shape[1]} sequences are used."
        return [
            _left_out(failed),
            failed.suffixed(state, suffix, f"Use as much of the state as the batch has: `{suffix}`.", meaning, safe=False),
            fewer,
        ]


def _reads_batch_first(failed: Failed) -> Fix | None:
    """`batch_first=True`, where the state has the batch that the input has at dimension 0, and the layer looks at dimension 1."""
    said = re.search(r"Expected hidden(?:\[\d\])? size \((\d+), (\d+), \d+\), got \[\d+, (\d+), \d+\]", failed.message)
    data, made = failed.operation.operand("input", "self"), failed.operation.module_made
    script = failed.scripts.get(made.place) if made is not None else None
    call = script.node_at(made.place.span) if script is not None else None
    if said is None or data is None or len(data.shape) != 3 or data.shape[:2] != (int(said[3]), int(said[2])) or said[2] == said[3]:
        return None
    if script is None or not isinstance(call, ast.Call) or called(call) not in ("LSTM", "GRU", "RNN") or any(k.arg in ("batch_first", None) for k in call.keywords):
        return None
    if not call.args or len(call.args) > 3 or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    last = max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)])
    meaning = "The layer then reads every input as [batch, time, features]; its state stays [layers, batch, hidden]."
    return failed.scripts.fix("The batch comes first: `batch_first=True`.", [script.insert(last, ", batch_first=True")], meaning, safe=False)


def _unsorted(failed: Failed) -> Fix | None:
    """`enforce_sorted=False`: torch sorts the sequences and puts the results back in order."""
    script, call = failed.script, failed.call
    if not isinstance(call, ast.Call) or called(call) not in ("pack_padded_sequence", "pack_sequence") or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    said = next((k.value for k in call.keywords if k.arg == "enforce_sorted"), None)
    if any(k.arg is None for k in call.keywords) or len(call.args) > (3 if called(call) == "pack_padded_sequence" else 1):
        return None
    last = max(script.end(item) for item in [*call.args, *(k.value for k in call.keywords)])
    edits = [script.replace(said, "False")] if said is not None else [script.insert(last, ", enforce_sorted=False")]
    return failed.scripts.fix("Let torch sort them: `enforce_sorted=False`.", edits)


def _left_out(failed: Failed) -> Fix | None:
    """`lstm(x, state)` → `lstm(x)`, where the state is zeros: that is what it starts from by itself, for any batch."""
    script, call, operation = failed.script, failed.call, failed.operation
    states = [o for o in operation.operands if o.argument.split("[")[0] in ("hx", "hidden", "h_0", "state", "h0")]
    if script is None or not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords or not states or failed.in_library:
        return None
    if any(o.made is None or not o.made.complete or o.made.operation not in ("zeros", "new_zeros", "zeros_like") for o in states):
        return None
    edits = [script.edit(script.end(call.args[0]), script.end(call.args[1]), "")]
    if ")" in script.between(script.end(call.args[0]), script.start(call.args[1])) or isinstance(call.args[1], ast.Starred):
        return None
    meaning = "It then always starts from zeros, also where the caller passes another state." if _is_argument(script, call) else ""
    return failed.scripts.fix("Pass no state: it starts from zeros by itself, in the size of the batch.", edits, meaning, safe=not meaning)


def _is_argument(script: Script, call: ast.Call) -> bool:
    """The state came into this function from outside."""
    scope = script.scope_of(call)
    names = {argument.arg for argument in scope.args.args} if isinstance(scope, Function) else set()
    return bool(names_in(call.args[1]) & names)


class AttentionMaskFixer(Fixer):
    rule = "attention-mask"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation, script, call = failed.operation, failed.script, failed.call
        if operation is None or script is None or not isinstance(call, ast.Call):
            return []
        padding = failed.operand("key_padding_mask")
        raw = operation.operand("key_padding_mask", "src_key_padding_mask")
        if raw is not None and batch_first_missing(operation, raw) is not None:
            return [_batch_first(failed)]
        sizes = {name: next(iter(argument.numbers), None) for name in ("src_len", "bsz") if (argument := operation.argument(name)) is not None}
        if padding is not None and len(padding.shape) == 2 and padding.shape == (sizes.get("src_len"), sizes.get("bsz")) != padding.shape[::-1]:
            return [failed.suffixed(padding, ".t()", f"The mask has one row for each sequence: `.t()` on {padding.called}.")]
        mask = failed.operand("attn_mask")
        query = failed.operand("query")
        if mask is None or query is None or len(mask.shape) != 2:
            return []
        if called(call) == "scaled_dot_product_attention" and len(query.shape) == 4:
            if mask.shape == (query.shape[0], query.shape[2]) and query.shape[0] != query.shape[2]:
                return [failed.suffixed(mask, "[:, None, None, :]", "One row of the mask for all heads and queries: `[:, None, None, :]`.")]
            return []
        keyword = next((k for k in call.keywords if k.arg == "attn_mask"), None)
        batch_and_length = mask.shape in ((query.shape[0], query.shape[1]), (query.shape[1], query.shape[0])) and mask.shape[0] != mask.shape[1]
        if keyword is None or operation.module_type not in ("MultiheadAttention", "") or not batch_and_length or mask.tensor.dtype != "bool":
            return []
        line, column = script.start(keyword.value)
        before = script.source.lines[line - 1][: column - 1]
        if not before.rstrip().endswith("attn_mask="):
            return []
        start = (line, len(before.rstrip()) - len("attn_mask=") + 1)
        edits = [script.edit(start, (line, start[1] + len("attn_mask")), "key_padding_mask")]
        return [scripts.fix("Pass it as what it is: `key_padding_mask`.", edits, "True then marks the padding that no query looks at.", safe=False)]


def _batch_first(failed: Failed) -> Fix | None:
    """`batch_first=True` for the one attention layer that the file makes."""
    script = failed.script
    layers = ("TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention", "Transformer")
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and called(node) in layers]
    if len(calls) != 1 or any(k.arg in ("batch_first", None) for k in calls[0].keywords) or not calls[0].args or isinstance(calls[0].args[-1], ast.Starred):
        return None
    last = max(script.end(item) for item in [*calls[0].args, *(k.value for k in calls[0].keywords)])
    meaning = "The layer then reads every input as [batch, time, features]."
    return failed.scripts.fix("The batch comes first: `batch_first=True`.", [script.insert(last, ", batch_first=True")], meaning, safe=False)


class NormShapeFixer(Fixer):
    rule = "norm-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        if failed.script is None:
            return []
        if "Expected more than 1 value per channel" not in failed.message:
            data = failed.operation.operand("input", "self") if failed.operation is not None else None
            if data is None or len(data.shape) < 2:
                return []
            turned = _features_last(failed)
            if turned is not None:
                return [turned]
            return [
                resized(failed, ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), 0, "num_features", data.shape[1], "channels"),
                resized(failed, ("LayerNorm",), 0, "normalized_shape", data.shape[-1], "features"),
            ]
        return [loader_drops_last(scripts, failed.script, "A last batch of one sample is then not used at all.")]


def _features_last(failed: Failed) -> Fix | None:
    """`norm(x)` → `norm(x.transpose(1, -1)).transpose(1, -1)`, where LayerNorm looks at the last dimension, BatchNorm1d at dimension 1, and
    just one other has the size that the layer was built for."""
    data, script, call = failed.operation.operand("input", "self"), failed.script, failed.call
    want = re.search(r"normalized_shape=\[(\d+)\]|should contain \d+ elements not (?P<channels>\d+)", failed.message)
    found = failed.node_of(data)
    if data is None or want is None or found is None or found[0] is not script or not isinstance(call, ast.Call) or failed.in_library:
        return None
    size = int(want["channels"] or want[1])
    axes = [axis for axis, own in enumerate(data.shape) if own == size]
    if len(axes) != 1 or axes[0] == 0 or want["channels"] and (len(data.shape) != 3 or axes[0] != 2):
        return None
    axis = axes[0]
    turned = ".transpose(1, 2)" if want["channels"] else f".transpose({axis}, -1)"
    meaning = f"Dimension {axis}, the only one of size {size}, is then what the layer looks at, and is put back where it was."
    edits = [*script.wrapped(found[1], turned), script.insert(script.end(call), turned)]
    return failed.scripts.fix(f"Dimension {axis} holds the features: `{turned}` before and after.", edits, meaning, safe=False)
