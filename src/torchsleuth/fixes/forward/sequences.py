"""Recurrent states, masks of attention layers, normalisation: the edits that the shapes single out."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, loader_drops_last, one_sample, text_of
from torchsleuth.fixes.forward.resizing import resized
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.forward.attention_mask import batch_first_missing


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
            said = re.search(r"Expected (\d+)", failed.message)
            layers = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
            if said and len(data.shape) == 3 and data.shape[1] == int(said[1]) and data.shape[0] != data.shape[1]:
                return [_features_last_for(failed, data)]
            return resized(failed, layers, 0, "input_size", int(said[1]), data.shape[-1], "features", data) if said else []
        width = _width_of_state(failed)
        if width:
            return width
        batch_first = _reads_batch_first(failed)
        if batch_first is not None:
            return [batch_first]
        if data is not None and _reads_both(failed) is not None:
            return [_added_up(failed)]
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
        cut = failed.suffixed(state, suffix, f"Use as much of the state as the batch has: `{suffix}`.", meaning, safe=False)
        # A state that goes on to the next batch would stay as small as this one.
        return [fewer, cut] if _goes_on(failed, text_of(state)) else [_left_out(failed), cut, fewer]


def _goes_on(failed: Failed, state: str) -> bool:
    """`out, h = rnn(x, self.h)`, `self.h = h.detach()`: the state is set anew in the function that uses it."""
    script, call = failed.script, failed.call
    if script is None or call is None or not state.startswith("self."):
        return False
    return any(path_of(node) == state and isinstance(getattr(node, "ctx", None), ast.Store) for node in script.own_nodes(script.scope_of(call)))


def _width_of_state(failed: Failed) -> list[Fix | None]:
    """The layer for the features that the state has, where only these differ: another layer of the program computed it."""
    said = re.search(r"Expected hidden(?:\[\d\])? size \((\d+, \d+), (\d+)\), got \[(\d+, \d+), (\d+)\]", failed.message)
    cell = re.search(r"hidden\d? has inconsistent hidden_size: got (\d+), expected (\d+)", failed.message)
    if cell is None and (said is None or said[1] != said[3]):
        return []
    now, size = (int(cell[2]), int(cell[1])) if cell else (int(said[2]), int(said[4]))
    state = next((o for o in failed.operation.operands if o.shape[-1:] == (size,) and o.argument.split("[")[0] in ("hx", "hidden", "h_0", "state", "h0")), None)
    layers = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
    return resized(failed, layers, 1, "hidden_size", now, size, "features", state) if state is not None and now != size else []


def _features_last_for(failed: Failed, data: Operand) -> Fix | None:
    """[batch, channels, time], as a convolution returns it, for a layer that reads [batch, time, features]."""
    made = failed.operation.module_made
    found = failed.scripts.node_at(made.place) if made is not None else None
    first = any(k.arg == "batch_first" and ast.unparse(k.value) == "True" for k in getattr(found[1], "keywords", ())) if found is not None else False
    suffix = ".transpose(1, 2)" if first else ".permute(2, 0, 1)"
    meaning = f"Right if dimension 1 of {data.called}, which has the {data.shape[1]} that the layer takes, holds the features, and dimension 2 the time."
    return failed.suffixed(data, suffix, f"Bring the features to the end: `{suffix}`.", meaning, safe=False)


def _reads_both(failed: Failed) -> Operand | None:
    """The state of a bidirectional layer, given to one with the same number of layers that reads in one direction."""
    said = re.search(r"Expected hidden(?:\[\d\])? size \((\d+), (\d+), (\d+)\), got \[(\d+), (\d+), (\d+)\]", failed.message)
    states = [o for o in failed.operation.operands if o.argument.split("[")[0] in ("hx", "hidden", "h_0", "state", "h0")]
    if said is None or not states or (2 * int(said[1]), said[2], said[3]) != (int(said[4]), said[5], said[6]):
        return None
    made = states[0].origin_of(0)
    while made is not None:
        found = failed.scripts.node_at(made.place)
        if found is not None and any(k.arg == "bidirectional" and ast.unparse(k.value) == "True" for k in getattr(found[1], "keywords", ())):
            return states[0]
        made = made.given
    return None


def _added_up(failed: Failed) -> Fix | None:
    """`decoder(x, state)` → `decoder(x, state.unflatten(0, (-1, 2)).sum(1))`; of an LSTM, both parts of the state."""
    script, call = failed.script, failed.call
    if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords or failed.in_library:
        return None
    node, several = call.args[1], any(o.argument.startswith("hx[") for o in failed.operation.operands)
    merged = ".unflatten(0, (-1, 2)).sum(1)"
    title = "Add up the two directions of each layer's state."
    meaning = "The encoder reads in both directions and has a state for each. They can be joined as well, for a layer of twice the width."
    if not several:
        return failed.scripts.fix(title, script.wrapped(node, merged), meaning, safe=False)
    if isinstance(node, ast.Tuple):
        return failed.scripts.fix(title, [edit for item in node.elts for edit in script.wrapped(item, merged)], meaning, safe=False)
    text = f"tuple(part{merged} for part in {script.segment(node)})"
    return failed.scripts.fix(title, [script.replace(node, text)], meaning, safe=False)


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
        lacking = re.search(r"expected (\d)D(?: or \dD)? input \(got (\d)D input\)", failed.message)
        if lacking is not None:
            return [one_sample(failed)] if int(lacking[1]) - int(lacking[2]) == 1 and not failed.operation.training else []
        if "Expected more than 1 value per channel" not in failed.message:
            data = failed.operation.operand("input", "self") if failed.operation is not None else None
            if data is None or len(data.shape) < 2:
                return []
            turned = _features_last(failed)
            if turned is not None:
                return [turned]
            return _rebuilt(failed, data)
        return [loader_drops_last(scripts, failed.script, "A last batch of one sample is then not used at all.")]


def _rebuilt(failed: Failed, data: Operand) -> list[Fix | None]:
    """The layer for as many channels, or features, as it is given."""
    layer = failed.operation.module_type
    said = re.search(r"normalized_shape=\[(\d+)\]|should contain \d+ elements not (\d+)", failed.message)
    if said is None:
        return []
    now, axis = int(said[1] or said[2]), -1 if said[1] else 1
    keyword, words = ("normalized_shape", "features") if said[1] else ("num_features", "channels")
    return resized(failed, (layer,), 0, keyword, now, data.shape[axis], words, data, axis)


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
