"""The failing call and its operands as things to edit."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand, shortened
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in
from torchsleuth.model import Edit, Fix

CASTS = {"float32": ".float()", "float64": ".double()", "float16": ".half()", "bfloat16": ".bfloat16()", "int64": ".long()"}


class Failed:
    """The operation with the user's text of its call. `call` is None where the failure has no call in the user's files."""

    def __init__(self, evidence: Evidence, scripts: Scripts) -> None:
        self.scripts = scripts
        self.operation: FailedOperation | None = evidence.operation
        self.message = self.operation.message if self.operation is not None else ""
        self.script: Script | None = None
        self.call: ast.AST | None = None
        self.in_library = False
        if self.operation is None:
            return
        place = self.operation.place
        self.in_library = place.in_library
        place = place.via if place.in_library else place
        self.script = scripts.get(place)
        self.call = self.script.node_at(place.span) if self.script is not None else None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Those of the user's own call: of the library's where that is what failed."""
        if self.operation is None:
            return ()
        return self.operation.call_operands if self.in_library else self.operation.operands

    def operand(self, *names: str) -> Operand | None:
        if self.operation is None:
            return None
        found = self.operation.operand(*names)
        if not self.in_library or found is None:
            return found
        # Inside a library the tensor is known by its identity with one that the user passed in.
        same = [o for o in self.operation.call_operands if o.shape == found.shape and o.tensor.dtype == found.tensor.dtype]
        return same[0] if len(same) == 1 else None

    def node_of(self, operand: Operand | None) -> tuple[Script, ast.expr] | None:
        """The user's expression for an operand, inside the failing call."""
        if operand is None or operand.place is None or not operand.source:
            return None
        script = self.scripts.get(operand.place)
        node = script.node_at(operand.place.span) if script is not None else None
        if script is None or not isinstance(node, ast.expr) or isinstance(node, ast.Starred) or isinstance(getattr(node, "ctx", None), ast.Store):
            return None
        # `parts[4]` of `torch.cat(parts)`: the call is given the list, and the tensor has no expression of its own in it.
        return (script, node) if script.segment(node).split() == operand.source.split() else None

    def suffixed(self, operand: Operand | None, suffix: str, title: str, meaning: str = "", safe: bool = True) -> Fix | None:
        """The operand followed by `.long()` or the like, in the failing call."""
        found = self.node_of(operand)
        if found is None:
            return None
        return self.scripts.fix(title, found[0].wrapped(found[1], suffix), meaning, safe)

    def suffixed_each(self, suffixes: list[tuple[Operand | None, str]], title: str) -> Fix | None:
        """Several operands at once; None where one of them is not to be found."""
        found = [(self.node_of(operand), suffix) for operand, suffix in suffixes]
        if any(place is None for place, _ in found):
            return None
        return self.scripts.fix(title, [edit for (script, node), suffix in found for edit in script.wrapped(node, suffix)])

    def renamed(self, call: ast.Call, name: str) -> list[Edit]:
        """The method or function of a call under another name."""
        return self.renamed_in(self.script, call, name) if self.script is not None else []

    def renamed_in(self, script: Script, call: ast.Call, name: str) -> list[Edit]:
        if not isinstance(call.func, ast.Attribute):
            return []
        return [script.edit(script.start_of_name(call.func), script.end(call.func), name)]


def text_of(operand: Operand | None) -> str:
    """A short expression for an operand that can be repeated without running anything twice; "" where it has none."""
    if operand is not None and re.fullmatch(r"[A-Za-z_][\w.]*", operand.source):
        return operand.source
    return ""


def product(sizes: tuple[int, ...] | list[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def one_sample(failed: Failed) -> Fix | None:
    """`model(sample)` → `model(sample.unsqueeze(0))`: where the program came into the model; not at the layers inside, which take batches."""
    given = failed.operation.entered if failed.operation is not None else None
    found = failed.scripts.node_at(given.place) if given is not None else None
    if given is None or found is None or not isinstance(found[1], ast.expr):
        return None
    scope = found[0].scope_of(found[1])
    # What a function was given comes from callers that pass batches, too.
    if isinstance(scope, Function) and names_in(found[1]) & {argument.arg for argument in scope.args.args}:
        return None
    text = shortened(found[0].segment(found[1]))
    meaning = "The result then is a batch of one, too."
    return failed.scripts.fix(f"Make `{text}` a batch of one: `.unsqueeze(0)`.", found[0].wrapped(found[1], ".unsqueeze(0)"), meaning, safe=False)


def one_squeezed(failed: Failed, scores: Operand) -> Fix | None:
    """`model(x).squeeze()` of a last batch of one has lost the batch, too: `squeeze(-1)`."""
    for made in scores.chain[:3]:
        found = failed.scripts.node_at(made.place) if made.operation == "squeeze" else None
        call = found[1] if found is not None else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and called(call) == "squeeze" and not call.args and not call.keywords:
            line, column = found[0].end(call)
            edits = [found[0].edit(found[0].end(call.func), (line, column), "(-1)")]
            meaning = "Without a dimension, `squeeze` drops every one of size 1: of a batch of one sample the batch itself."
            return failed.scripts.fix("Drop the last dimension only: `.squeeze(-1)`.", edits, meaning)
    return None


def truncated(failed: Failed) -> Fix | None:
    """The user's sequences cut to the positions that a transformers model has."""
    operation = failed.operation
    if operation is None or not failed.in_library or failed.script is None:
        return None
    config = dict(operation.config)
    limit = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(limit, int):
        return None
    if any(word in operation.place.span.file for word in ("roberta", "camembert", "longformer", "mpnet")):
        limit -= int(config.get("pad_token_id") or 1) + 1  # these count positions from padding_idx + 1
    lengths = {operand.shape[1] for operand in failed.operands if len(operand.shape) == 2 and operand.shape[1] > limit}
    if len(lengths) != 1 or limit <= 0:
        return None
    length = next(iter(lengths))
    edits: list[Edit] = []
    long = {operand.source for operand in failed.operands if len(operand.shape) == 2 and operand.shape[1] == length}
    if not isinstance(failed.call, ast.Call) or "" in long:
        return None
    # A sequence that grows by `cat` is being generated: its newest tokens are those that count.
    grows = any(made is not None and made.operation == "cat" for operand in failed.operands if operand.source in long for made in [operand.origin_of(1)])
    cut = f"[:, -{limit}:]" if grows else f"[:, :{limit}]"
    for node in [*failed.call.args, *(keyword.value for keyword in failed.call.keywords)]:
        if isinstance(node, ast.Starred) or failed.script.segment(node).startswith("**"):
            return None
        if failed.script.segment(node) in long:
            edits += failed.script.wrapped(node, cut)
    meaning = f"Of {length} tokens the last {length - limit} are then cut off; `truncation=True` in the tokenizer does it earlier."
    if grows:
        meaning = f"Of {length} tokens the newest {limit} are then used."
    return failed.scripts.fix(f"Cut the sequences to the model's {limit} positions: `{cut}`.", edits, meaning, safe=False)


def loader_drops_last(scripts: Scripts, script: Script, why: str) -> Fix | None:
    """`drop_last=True` in the one DataLoader of the file."""
    calls = [n for n in ast.walk(script.tree) if isinstance(n, ast.Call) and ast.unparse(n.func).split(".")[-1] == "DataLoader"]
    if len(calls) != 1 or any(keyword.arg in ("drop_last", None, "batch_sampler") for keyword in calls[0].keywords):
        return None
    last = [*calls[0].args, *(keyword.value for keyword in calls[0].keywords)]
    if not last:
        return None
    edits = [script.insert(max(script.end(node) for node in last), ", drop_last=True")]
    return scripts.fix("Leave out the last, smaller batch: `drop_last=True`.", edits, why, safe=False)
