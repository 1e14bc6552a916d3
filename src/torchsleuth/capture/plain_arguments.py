"""The numbers, sizes and flags that a failing call was given beside its tensors."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth.capture.arguments import Call, Given, holds_tensors
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry
from torchsleuth.evidence import Place
from torchsleuth.evidence_forward import Argument
from torchsleuth.origin import Origin

if typing.TYPE_CHECKING:
    from torchsleuth.capture.origins import Origins


class PlainArguments:
    """The part of a gathering that describes what is no tensor."""

    program_call: Call | None
    inner_call: Call | None
    origins: Origins
    _place: typing.Callable[[ast.AST, Entry], Place | None]
    _text: typing.Callable[[ast.AST, Entry], str]

    def arguments(self) -> tuple[Argument, ...]:
        """Numbers, sizes and flags: those of the program's own expression first, then torch's."""
        found: dict[str, Argument] = {}
        for call in (self.program_call, self.inner_call):
            if call is None:
                continue
            groups: dict[str, list[Given]] = {}
            for item in call.given:
                if item.name:
                    groups.setdefault(item.name, []).append(item)
            for name, items in groups.items():
                values = [item.value for item in items]
                if name in found or any(holds_tensors(value) or isinstance(value, torch.nn.Module) for value in values):
                    continue
                argument = self._argument(name, items, call.entry)
                if argument is not None:
                    found[name] = argument
                    for element in self._elements(name, items, call.entry):
                        found.setdefault(element.name, element)
        return tuple(found.values())

    def _elements(self, name: str, items: list[Given], entry: Entry) -> list[Argument]:
        """The single sizes of `view(batch, -1)` and `view((batch, -1))`: `size[0]`, `size[1]`."""
        items, entry = self._written_out(items, entry)
        node = items[0].node
        if len(items) == 1 and isinstance(node, (ast.Tuple, ast.List)) and isinstance(items[0].value, (list, tuple)):
            if len(node.elts) == len(items[0].value):
                items = [Given(name, element, value) for element, value in zip(node.elts, items[0].value)]
        if len(items) == 1 and type(items[0].value) is not int or entry.origin is Origin.TORCH:
            return []
        found = []
        for position, item in enumerate(items):
            element = self._argument(f"{name}[{position}]", [item], entry)
            if element is not None:
                found.append(element)
        return found

    def _written_out(self, items: list[Given], entry: Entry) -> tuple[list[Given], Entry]:
        """`view(*shape)`, `view(shape)`: the elements of the tuple that `shape` was given, and the frame in which it was."""
        node = items[0].node
        name = node.value if isinstance(node, ast.Starred) else node
        values = [item.value for item in items] if isinstance(node, ast.Starred) else items[0].value
        if not isinstance(name, ast.Name) or any(item.node is not node for item in items) or not isinstance(values, (list, tuple)):
            return items, entry
        found = self.origins.definitions.step(entry, name) or self.origins.definitions.step(self.origins.definitions.around(entry), name)
        elements = found[1].elts if found is not None and isinstance(found[1], (ast.Tuple, ast.List)) else []
        # What stands there was reckoned at another time: it must be the same now.
        if found is None or len(elements) != len(values) or any(found[0].evaluator.value(element) not in (UNKNOWN, value) for element, value in zip(elements, values)):
            return items, entry
        return [Given(items[0].name, element, value) for element, value in zip(elements, values)], found[0]

    def _argument(self, name: str, items: list[Given], entry: Entry) -> Argument | None:
        values = [item.value for item in items]
        nodes = [item.node for item in items if item.node is not None]
        if entry.origin is Origin.TORCH:
            nodes = []
        elif any(value is UNKNOWN for value in values) and not nodes:
            return None
        sizes = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        numbers = tuple(int(v) for v in sizes) if all(type(v) is int for v in sizes) else ()
        if any(value is UNKNOWN for value in values):
            shown = ""
        elif all(_is_showable(value) for value in values):
            shown = repr(values[0]) if len(values) == 1 else repr(values)
        else:
            return None
        text, place, made = "", None, None
        if nodes:
            place = self._place(nodes[0], entry)
            text = ", ".join(self._text(node, entry) for node in dict.fromkeys(nodes))
            if len(nodes) == 1:
                made = self.origins.definitions.made(entry, nodes[0])
                if made is not None and place is not None and made.place.span == place.span:
                    made = None
        return Argument(name, text, shown, place, made, numbers)


def _is_showable(value: object, depth: int = 3) -> bool:
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= 32 and all(_is_showable(item, depth - 1) for item in value)
    if isinstance(value, str):
        return len(value) <= 40
    return value is None or isinstance(value, (int, float, complex, bool, torch.dtype, torch.device, slice, type(Ellipsis)))
