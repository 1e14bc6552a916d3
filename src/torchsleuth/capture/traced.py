"""What the text of `torch.compile` tells of the call that its tracing refused: the operation, its operands, the layer."""

from __future__ import annotations

import ast
import re
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.evaluate import UNKNOWN, plain_attribute
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.evidence import Place, TensorFact
from torchsleuth.evidence_forward import Made, Operand
from torchsleuth.model import Known

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_FAKE = re.compile(r"FakeTensor\(\.\.\.(?:, device='([\w:]+)')?, size=\(([\d, ]*)\)(?:, dtype=torch\.(\w+))?")
_CALLED = re.compile(r"call_(?:function|method) (?:<(?:built-in (?:function|method)|function) )?(\w+)")
_LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d"})  # called with (input, weight, bias)


def traced_name(message: str) -> str:
    """The operation, where the text names one of those whose arguments are known by their order."""
    found = _CALLED.search(message)
    return found[1] if found and found[1] in _LAYERS else ""


def traced_operands(message: str, place: Place) -> tuple[Operand, ...]:
    """The tensors that torch.compile names in its message, with the expressions that stand for them in the failing line."""
    head = message.split("got ", 1)[0]
    found = _FAKE.findall(head)
    try:
        tree = ast.parse(place.source.strip(), mode="eval").body
    except SyntaxError:
        tree = None
    parts: list[ast.expr] = []
    if isinstance(tree, ast.BinOp):
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.Call):
        receiver = [tree.func.value] if isinstance(tree.func, ast.Attribute) else []
        parts = [*receiver, *tree.args] if len(receiver) + len(tree.args) == len(found) else list(tree.args)
    layer = bool(traced_name(message)) and 2 <= len(found) <= 3
    if layer and isinstance(tree, ast.Call) and len(tree.args) == 1:
        parts = list(tree.args)  # `self.down(x)`: the weights are the layer's own
    whole = len(parts) == len(found) or layer and len(parts) == 1
    sources = [*(ast.unparse(part) for part in parts), *[""] * (len(found) - len(parts))] if whole else [""] * len(found)
    names = ("input", "weight", "bias") if layer else ("self", "other") if isinstance(tree, ast.BinOp) else tuple(f"operand {k + 1}" for k in range(len(found)))
    operands = []
    for name, text, (device, sizes, dtype) in zip((*names, *[""] * len(found)), sources, found):
        shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        fact = TensorFact("", shape, dtype or "float32", device or "cpu", False, False)
        operands.append(Operand(name, text, None, fact, Known.OBSERVED))
    return tuple(operands)


class Layer(typing.NamedTuple):
    called: str  # dotted path from the model, or as the failing line calls it where several objects run that line
    kind: str
    made: Made | None


def traced_layer(crash: Crash, place: Place, weight: tuple[int, ...]) -> Layer | None:
    """The layer that the failing line calls, `self.down(...)`: of the live modules of the class whose code that line is, the
    attribute that holds a weight of the shape in the text."""
    try:
        call = ast.parse(place.source.strip(), mode="eval").body
    except SyntaxError:
        return None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return _listed_layer(crash, place, weight)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return None
    found: dict[int, tuple[str, torch.nn.Module, torch.nn.Module]] = {}
    for root_name, root in crash.names.modules:
        for path, owner in root.named_modules():
            layer = plain_attribute(owner, call.func.attr) if _runs(owner, place) else UNKNOWN
            if isinstance(layer, torch.nn.Module) and tuple(getattr(getattr(layer, "weight", None), "shape", ())) == weight:
                whole = ".".join(part for part in (root_name, path.replace("_orig_mod.", "").replace("_orig_mod", ""), call.func.attr) if part)
                found.setdefault(id(layer), (whole, owner, layer))
    if not found:
        return None
    name, owner, layer = next(iter(found.values()))
    if len({(type(one), type(other)) for _, one, other in found.values()}) > 1:
        return None
    defined = attribute_definition(owner, call.func.attr)
    made_at = source.place_of_node(*defined, Known.INFERRED) if defined is not None else None
    made = Made(operation_word(defined[1]), made_at) if defined is not None and made_at is not None else None
    return Layer(name if len(found) == 1 else ast.unparse(call.func), type(layer).__name__, made)


def _listed_layer(crash: Crash, place: Place, weight: tuple[int, ...]) -> Layer | None:
    """`for layer in self.layers: x = layer(x)`: the one layer with this weight in the lists and chains of the module that runs the line."""
    found: dict[int, tuple[str, torch.nn.Module, str, torch.nn.Module]] = {}
    for root_name, root in crash.names.modules:
        for path, owner in root.named_modules():
            for name, held in owner.named_children() if _runs(owner, place) else ():
                if isinstance(held, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
                    for key, layer in held.named_children():
                        if tuple(getattr(getattr(layer, "weight", None), "shape", ())) == weight:
                            parts = (root_name, path.replace("_orig_mod.", "").replace("_orig_mod", ""), name, key)
                            found.setdefault(id(layer), (".".join(part for part in parts if part), owner, name, layer))
    if len(found) != 1:
        return None
    called, owner, name, layer = next(iter(found.values()))
    defined = attribute_definition(owner, name)
    place_made = source.place_of_node(*defined, Known.INFERRED) if defined is not None else None
    return Layer(called, type(layer).__name__, Made(operation_word(defined[1]), place_made) if defined is not None and place_made is not None else None)


def traced_origin(crash: Crash, place: Place, text: str) -> Made | None:
    """For a variable of the traced function: the expression it was bound to, where it is bound only once and is no parameter."""
    for _, root in crash.names.modules:
        for owner in root.modules():
            for base in type(owner).__mro__:
                for function in vars(base).values():
                    code = getattr(function, "__code__", None)
                    scope = function_node(code) if code is not None and source.display_name(code.co_filename) == place.span.file else None
                    if scope is None or code is None or not scope.lineno <= place.span.line <= (scope.end_lineno or 0):
                        continue
                    bound = [item for item in bindings(scope) if item[0] == text]
                    if len(bound) != 1 or bound[0][3] != "assign" or text in code.co_varnames[: code.co_argcount]:
                        return None
                    where = source.place_of_node(code, bound[0][2], Known.INFERRED)
                    return Made(operation_word(bound[0][2]), where, complete=False) if where is not None else None
    return None


def _runs(owner: torch.nn.Module, place: Place) -> bool:
    """Whether the failing line stands in a method of the module's class."""
    for base in type(owner).__mro__:
        for function in vars(base).values():
            code = getattr(function, "__code__", None)
            if code is not None and source.display_name(code.co_filename) == place.span.file:
                scope = function_node(code)
                if scope is not None and scope.lineno <= place.span.line <= (scope.end_lineno or 0):
                    return True
    return False
