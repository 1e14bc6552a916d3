"""Reproductions of forward failures: the failing call on tensors in the operands' shapes, dtypes and bad values. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Known
from torchsleuth.repro.parts import identifier, tensor

Lines = list[str]
_SYMBOLS = {
    "mul": "*", "add": "+", "sub": "-", "div": "/", "matmul": "@", "pow": "**", "eq": "==", "ne": "!=", "gt": ">", "lt": "<", "ge": ">=", "le": "<=",
    "__mul__": "*", "__add__": "+", "__sub__": "-", "__matmul__": "@", "__and__": "&", "__or__": "|", "__truediv__": "/",
}  # fmt: skip


def candidates(evidence: Evidence) -> Iterator[Lines]:
    operation = evidence.operation
    if operation is None:
        return
    names = _names(operation)
    made: Lines = []
    for operand, name in zip(operation.operands, names, strict=True):
        made += _made(operand, name)
    yield from _with_module(operation)
    for call in _calls(operation, names):
        yield [*made, call]


def _with_module(operation: FailedOperation) -> Iterator[Lines]:
    """The user's own call of a torch module, where the module is built from numbers: `layer = torch.nn.GRU(5, 8)`."""
    built = operation.module_made.place.source if operation.module_made is not None else ""
    operands = [operand for operand in (operation.call_operands or operation.operands) if operand.tensor.kind not in ("parameter", "buffer")]
    place = operation.place.via if operation.place.in_library and operation.place.via is not None else operation.place
    try:
        tree, call = ast.parse(built, mode="eval").body, ast.parse(place.source.strip(), mode="eval").body
    except SyntaxError:
        return
    if not isinstance(tree, ast.Call) or not isinstance(call, ast.Call):
        return
    inside = [node for argument in [*tree.args, *(k.value for k in tree.keywords)] for node in ast.walk(argument)]
    if any(isinstance(node, (ast.Name, ast.Call, ast.Attribute)) for node in inside):
        return
    layer = "layer"
    known: dict[str, str] = {}
    lines = [f"{layer} = torch.nn.{ast.unparse(tree.func).split('.')[-1]}({', '.join([*map(ast.unparse, tree.args), *(f'{k.arg}={ast.unparse(k.value)}' for k in tree.keywords)])})"]
    for number, operand in enumerate(operands):
        if not operand.source or operand.source in known:
            continue
        name = identifier(operand.source if re.fullmatch(r"[\w.]+", operand.source) else "", f"t{number}")
        if name in (layer, *known.values()):
            name = f"t{number}"
        known[operand.source] = name
        lines += _made(operand, name)
    arguments = [ast.unparse(argument) for argument in call.args]
    keywords = [(k.arg, ast.unparse(k.value)) for k in call.keywords if k.arg]
    if any(text not in known for text in arguments) or any(text not in known and not _is_plain(text) for _, text in keywords):
        return
    written = [*(known[text] for text in arguments), *(f"{name}={known.get(text, text)}" for name, text in keywords)]
    yield [*lines, f"{layer}({', '.join(written)})"]


def _is_plain(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def _names(operation: FailedOperation) -> list[str]:
    found: list[str] = []
    for number, operand in enumerate(operation.operands):
        source = operand.source if re.fullmatch(r"[\w.\[\]]+", operand.source) else ""
        argument = operand.argument if operand.argument.isidentifier() else ""
        name = identifier(source or operand.tensor.name, identifier(argument, f"t{number}"))
        while name in found:
            name += "_"
        found.append(name)
    return found


def _made(operand: Operand, name: str) -> Lines:
    shape, dtype = operand.shape, operand.tensor.dtype
    lines = [f"{name} = {tensor(shape, dtype)}"]
    if not operand.contiguous and len(shape) >= 2:
        turned = (*shape[:-2], shape[-1], shape[-2])
        lines = [f"{name} = {tensor(turned, dtype)}.transpose(-1, -2)"]
    if operand.tensor.device not in ("cpu", "") and operand.known is not Known.RECOMPUTED:
        lines = [f'{lines[0]}.to("{operand.tensor.device}")']
    if operand.values is not None and operand.values.first:
        first = operand.values.first[0]
        value = int(first.value) if float(first.value).is_integer() else first.value
        if dtype.startswith("float"):
            lines = [f"{name} = torch.rand({', '.join(map(str, shape))})"]
        lines.append(f"{name}[{', '.join(map(str, first.position))}] = {value}" if first.position else f"{name}.fill_({value})")
        low = operand.values.low
        if low and low > 0:
            lines[0] += f" + {low}"
    return lines


def _calls(operation: FailedOperation, names: list[str]) -> Iterator[str]:
    name = operation.name
    if operation.index or name in ("__getitem__", "getitem", "__setitem__"):
        yield from _subscripts(operation, names)
    if name in ("bool", "__bool__") and names:
        yield f"bool({names[0]})"
    symbol = _SYMBOLS.get(name.rstrip("_") if not name.startswith("__") else name)
    if symbol and len(names) == 2:
        yield f"{names[0]} {symbol} {names[1]}"
    if symbol and len(names) == 2 and name.endswith("_"):
        yield f"{names[0]} {symbol}= {names[1]}"
    replaced = _substituted(operation, names)
    if replaced:
        yield replaced
    positional, keywords = _arguments(operation, names)
    every = ", ".join([*positional, *keywords])
    yield f"torch.{name}({every})"
    yield f"torch.nn.functional.{name}({every})"
    if positional:
        yield f"{positional[0]}.{name}({', '.join([*positional[1:], *keywords])})"
    if name == "view" or name == "reshape":
        sizes = operation.argument("size", "shape")
        if sizes is not None and sizes.numbers:
            yield f"{names[0]}.{name}({', '.join(map(str, sizes.numbers))})"
    plain = ", ".join(positional)
    yield f"torch.{name}({plain})"
    yield f"torch.nn.functional.{name}({plain})"


def _arguments(operation: FailedOperation, names: list[str]) -> tuple[list[str], list[str]]:
    """Tensors by position (lists put together), and the numbers and flags by name."""
    positional: list[str] = []
    lists: dict[str, list[str]] = {}
    keywords: list[str] = []
    for operand, name in zip(operation.operands, names, strict=True):
        listed = re.fullmatch(r"(\w+)\[\d+\]", operand.argument)
        if listed:
            if listed[1] not in lists:
                lists[listed[1]] = []
                positional.append(f"\0{listed[1]}")
            lists[listed[1]].append(name)
        elif positional and operand.argument.isidentifier() and operand.argument not in ("self", "other", "input", "mat2", "index", "target", "vec"):
            keywords.append(f"{operand.argument}={name}")
        else:
            positional.append(name)
    positional = [f"[{', '.join(lists[item[1:]])}]" if item.startswith("\0") else item for item in positional]
    for argument in operation.arguments:
        if "[" in argument.name or not argument.name.isidentifier() or argument.value in ("", "None"):
            continue
        try:
            ast.literal_eval(argument.value)
        except (ValueError, SyntaxError):
            continue
        if argument.name in ("_stacklevel", "allow_unreachable", "accumulate_grad"):
            continue
        keywords.append(f"{argument.name}={argument.value}")
    return positional, keywords


def _subscripts(operation: FailedOperation, names: list[str]) -> Iterator[str]:
    if not names:
        return
    parts = []
    for item in operation.index:
        if item.operand is not None and item.operand < len(names):
            parts.append(names[item.operand])
        elif item.value is not None:
            parts.append(str(item.value))
        elif item.kind in ("slice", "none", "ellipsis"):
            parts.append(item.source if re.fullmatch(r"[\d:\-. None]+", item.source) else ":")
        elif item.kind == "float":
            parts.append("2.5")
        else:
            parts.append(item.source)
    if parts:
        if operation.name == "__setitem__":
            values = [name for position, name in enumerate(names[1:], 1) if all(item.operand != position for item in operation.index)]
            yield f"{names[0]}[{', '.join(parts)}] = {values[-1] if values else 0}"
        yield f"{names[0]}[{', '.join(parts)}]"


def _substituted(operation: FailedOperation, names: list[str]) -> str:
    """The user's own call with each operand's expression replaced by its variable, where nothing unknown is left."""
    try:
        tree = ast.parse(operation.place.source.strip(), mode="eval")
    except SyntaxError:
        return ""
    known = {operand.source: name for operand, name in zip(operation.operands, names, strict=True) if operand.source}
    numbers = {argument.source: argument.value for argument in operation.arguments if argument.source and argument.value and "[" not in argument.name}

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr):
                text = ast.unparse(node)
                if text in known:
                    return ast.Name(known[text], ast.Load())
                if text in numbers and not isinstance(node, ast.Constant):
                    try:
                        return ast.parse(numbers[text], mode="eval").body
                    except SyntaxError:
                        return node
            return super().generic_visit(node)

    text = ast.unparse(Replace().visit(tree))
    text = re.sub(r"\bF\.", "torch.nn.functional.", text)
    text = re.sub(r"(?<![\w.])nn\.", "torch.nn.", text)
    free = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)} - {"torch", *names}
    return "" if free or len(text) > 160 else text
