"""A view that does not fit: `reshape` where memory is not in order, the tensor's own batch size where one was fixed."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, loader_drops_last, product, text_of
from torchsleuth.fixes.forward.resizing import argument_of, number_in
from torchsleuth.fixes.script import Script, Scripts, called
from torchsleuth.model import Diagnosis, Fix


class ViewSizeFixer(Fixer):
    rule = "view-size"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        call = failed.call
        if failed.script is None or failed.in_library or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return []
        if "view size is not compatible" in failed.message:
            if called(call) != "view":
                return []
            return [scripts.fix("`reshape` copies where it must; `view` never does.", failed.renamed(call, "reshape"))]
        return [*_batch_size(failed, call), _flattened(failed, call) if called(call) in ("view", "reshape") else None]


def _flattened(failed: Failed, call: ast.Call) -> Fix | None:
    """`x.view(-1, 16 * 5 * 5)` of samples of 16 × 4 × 4: the number here, and in the one linear layer that takes it."""
    tensor, asked = failed.operand("self", "input"), failed.operation.argument("size", "shape", "sizes")
    if tensor is None or asked is None or len(asked.numbers) != 2 or len(tensor.shape) < 3 or asked.numbers[0] not in (-1, tensor.shape[0]):
        return None
    size = failed.operation.argument("size[1]", "shape[1]", "sizes[1]")
    found = failed.scripts.node_at(size.place) if size is not None else None
    if found is None or number_in(found[1]) is None:
        made = size.made if size is not None else None
        while made is not None and made.given is not None:
            made = made.given
        found = failed.scripts.node_at(made.place) if made is not None else None
        found = (found[0], found[1].value) if found is not None and isinstance(found[1], ast.Assign) else found
    if found is None:
        return None
    return reflattened(failed, *found, asked.numbers[1], tensor.shape[1:])


def reflattened(failed: Failed, script: Script, node: ast.AST, now: int, sizes: tuple[int, ...]) -> Fix | None:
    """The number of values that one sample has, where `now` stands for it, and as the input of a linear layer."""
    new = product(sizes)
    if number_in(node) != now or new == now or now <= 0:
        return None
    text = " * ".join(map(str, sizes)) if isinstance(node, ast.BinOp) and len(sizes) > 1 else str(new)
    layers = [
        (given, n)
        for n in ast.walk(script.tree)
        if isinstance(n, ast.Call) and called(n) == "Linear" and (given := argument_of(n, 0, "in_features")) is not None and number_in(given) == now
    ]
    if len(layers) > 1 or layers and layers[0][0] is node:
        return None
    edits = [script.replace(node, text), *(script.replace(given, text) for given, _ in layers)]
    also = f", for which `{script.segment(layers[0][1])}` is then built" if layers else ""
    meaning = f"A sample has {' × '.join(map(str, sizes))}{f' = {new}' * (len(sizes) > 1)} values here{also}. Right if its size is; if the inputs were to be larger or smaller, change those."
    return failed.scripts.fix(f"Flatten each sample to its {new} values: `{text}`.", edits, meaning, safe=False)


def _batch_size(failed: Failed, call: ast.Call) -> list[Fix | None]:
    """The shape fits with the tensor's own first size in place of a fixed one."""
    asked = re.search(r"shape '\[([^\]]*)\]' is invalid for input of size (\d+)", failed.message)
    tensor = failed.operand("self", "input")
    if asked is None or tensor is None or not tensor.shape or called(call) not in ("view", "reshape"):
        return []
    sizes = [int(size) for size in asked[1].split(",") if size.strip()]
    arguments = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    if ast.unparse(call.func.value) == failed.script.module_name("torch"):
        if len(call.args) != 2 or not isinstance(call.args[1], (ast.Tuple, ast.List)):
            return []
        arguments = call.args[1].elts
    if len(arguments) != len(sizes) or sizes[0] < 0 or sizes[0] == tensor.shape[0]:
        return []
    corrected = [tensor.shape[0], *sizes[1:]]
    rest = product([size for size in corrected if size >= 0])
    fits = rest == int(asked[2]) if -1 not in corrected else rest > 0 and int(asked[2]) % rest == 0
    # `view(32, -1)` fits any multiple: only a shape that is otherwise fixed, or the row itself, tells that it is the batch.
    if not fits:
        return []
    name = text_of(tensor)
    replacement = f"{name}.size(0)" if name else "-1" if -1 not in sizes else ""
    if not replacement:
        return []
    edits = [failed.script.replace(arguments[0], replacement)]
    why = f"Batches of fewer than {sizes[0]} rows are then not used at all."
    fewer = loader_drops_last(failed.scripts, failed.script, why) if tensor.shape[0] < sizes[0] else None
    return [failed.scripts.fix(f"Take the batch size from the tensor: `{replacement}` instead of {sizes[0]}.", edits), fewer]
