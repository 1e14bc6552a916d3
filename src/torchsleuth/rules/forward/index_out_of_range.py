"""An index that no element has."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, IndexItem, Made, Operand, ValueRange
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits, length_create, of_axis
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import (
    ON_THE_GPU,
    TRUNCATE,
    argument_fact,
    bad_values,
    code,
    config_facts,
    expr,
    failed,
    is_about_positions,
    is_unexplained_death,
    legal,
    made_words,
    operand_facts,
    other_facts,
    plural,
    setting_facts,
    shape,
    value_words,
)  # fmt: skip

_NO_INDEX = ("classes", "num_classes", "probability", "weight", "compiled")
_EMBEDDINGS = ("embedding", "embedding_bag")


class IndexOutOfRange(CrashRule):
    """An index asks for an element that the dimension does not have.

    What happened
    -------------
    A dimension of size n has the positions 0 … n-1 (from the end: -1 … -n). The index was outside. For `x[i]` and
    `select` the message names tensor size and dimension; for an embedding it only says "index out of range in self",
    and the offending value stands somewhere in the index tensor.

    Why
    ---
    An embedding table with 100 rows has ids 0 … 99. Ids go beyond it when tokens were added and the model was not
    resized, when ids count from 1, when another tokenizer made them, or when -100, the label that losses ignore, is
    used as an index. Positions go beyond their table when a sequence is longer than the model's maximum.

    Example
    -------
    This raises "index out of range in self":

        import torch

        table = torch.nn.Embedding(10, 4)
        ids = torch.tensor([[1, 2], [3, 10]])     # 10 is one too many: rows are 0 … 9
        table(ids)

    Fix
    ---
    Make the table large enough (`num_embeddings`, `model.resize_token_embeddings(len(tokenizer))`), or correct the
    ids: subtract what they start at, truncate the sequence, replace -100 before it is used as an index.

    Common false explanations
    -------------------------
    "It comes from backward, from a reduced dimension." The error is raised in whichever code indexes. Summing over a
    dimension and calling backward does not raise. This runs and prints the shape of the gradient:

        import torch

        x = torch.ones(1, 32, 100, requires_grad=True)
        x.sum(dim=0).sum().backward()
        print(x.grad.shape)

    "Padding is missing." Padding changes the length of a sequence, not the range of its ids: an id that is too large
    stays too large. This raises "index out of range in self":

        import torch

        ids = torch.nn.functional.pad(torch.tensor([3, 10]), (0, 4), value=0)
        torch.nn.Embedding(10, 2)(ids)

    "The mask has the wrong shape." A wrong mask shape raises a RuntimeError about sizes, or an IndexError that says "mask".
    This raises "The shape of the mask":

        import torch

        torch.ones(2, 3)[torch.ones(2, 4, dtype=torch.bool)]
    """

    name = "index-out-of-range"
    messages = (
        r"index out of range in self",
        r"index -?\d+ (is )?out of (bounds|range)",
        r"out of range: tried to access index",
        r"takes value -?\d+ which is not in the valid range",
        r"Expected i < index_size to be true",  # EmbeddingBag on two threads, with an index below 0
        r"Expected idx >= 0 && idx < num_embeddings",
        r"index \S+ is out of bounds for dimension",
        r"INDICES element is out of DATA bounds",
        r"start \(-?\d+\) \+ length",
        r"IndexError: index \d+ is out of range",
        *ON_THE_GPU,
    )
    needs = ("operation", "device")
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None or is_unexplained_death(evidence):
            return None
        bad = next((operand for operand in operation.operands if operand.values is not None and operand.values.bad), None)
        if bad is not None:
            return self._values(operation, bad) if bad.values.limit not in _NO_INDEX else None
        if evidence.device is not None:
            return None
        item = next((item for item in operation.index if _is_outside(item)), None)
        if item is not None:
            return self._item(operation, item)
        return self._message(operation)

    # -- an index tensor whose values can be read -------------------------------------------------

    def _values(self, operation: FailedOperation, bad: Operand) -> Diagnosis:
        used, bad = bad, operation.given_for(bad)
        values = bad.values
        assert values is not None
        culprits = Culprits()
        first = values.first[0]
        culprits.lead(operation, Role.INDEX, f"holds {first.value}; legal: {legal(values)}", bad)
        if _are_positions(operation, used) and operation.place.in_library and used.shape:
            culprits.create(*length_create(operation, used.shape[-1]))
        culprits.create(bad.value_made, value_words(bad, f"the value {first.value}"))
        if bad.value_made is not None and bad.value_made.operation == "arange" and bad.shape:  # counted: it is the length that is wrong
            culprits.create(bad.origin_of(-1), f"{bad.called} has its {bad.shape[-1]} values from here")
        table = operation.operand("weight") if operation.name in _EMBEDDINGS else operation.operand("self", "input")
        if table is not None and table is not bad and _may_be_too_small(operation, values):
            axis = _limiting_axis(values)
            if values.limit == "rows":
                culprits.create(table.origin_of(0), f"{table.called} has its {plural(table.shape[0], 'row')} from here")
            elif axis is not None and axis < len(table.shape) and _is_declared(table.origin_of(axis)):
                culprits.create(*of_axis(table, axis))
        facts = [Fact(bad_values(bad, values), bad.known)]
        if used is not bad:
            passed = f"The library passes its values on as {used.called} {shape(used.shape)}." if operation.place.in_library else f"torch reads it as one row, {shape(used.shape)}."
            facts.append(Fact(passed, Known.OBSERVED))
        story, fixes, inferred = _story(operation, bad, table)
        facts += config_facts(operation, int(values.high) + 1)
        if table is not None and table is not bad:
            rows = f" ({plural(table.shape[0], 'row')})" if values.limit == "rows" else ""
            facts.append(Fact(f"{table.called} has shape {shape(table.shape)}{rows}, dtype {table.tensor.dtype}{_made(table, operation)}.", table.known))
        facts.append(Fact(f"{bad.called} has shape {shape(bad.shape)}, dtype {bad.tensor.dtype}, on {bad.tensor.device}.", bad.known))
        if story and inferred:
            facts.append(Fact(story, Known.INFERRED))
            story = ""
        facts += other_facts(operation, table, bad, used)
        facts += _misleading(operation, values.limit)
        facts += setting_facts(operation)
        where = f"`{operation.module}`" if operation.module else f"`{operation.name.strip('_')}`"
        called, size = table.called if table is not None else "the tensor", int(values.high) + 1
        what = {"rows": f"the {plural(size, 'row')} of {where}", "elements": f"the {plural(size, 'element')} of {called}"}.get(
            values.limit, f"{values.limit} of {called}, which has size {size}"
        )
        title = f"{bad.called} holds {first.value}, beyond {what}" if first.value >= 0 else f"{bad.called} holds {first.value}, a negative index, for {what}"
        why = (
            f"{bad.called} is used as an index, so every value in it must lie in {legal(values)}; "
            f"{plural(values.bad, 'value')} {'does' if values.bad == 1 else 'do'} not. {story}"
        ).strip()
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(*fixes))

    # -- a plain number ---------------------------------------------------------------------------

    def _item(self, operation: FailedOperation, item: IndexItem) -> Diagnosis:
        assert item.size is not None and item.value is not None
        culprits = Culprits()
        base = operation.operands[0] if operation.operands else None
        called = base.called if base is not None else "the tensor"
        span = f"0…{item.size - 1}" if item.size else "none: the dimension is empty"
        named = item.source != str(item.value)
        what = f"{item.source} = {item.value}" if named else f"index {item.value}"
        culprits.lead(operation, Role.INDEX, f"{what}; dimension {item.axis} has size {item.size}: legal {span}")
        loop = item.made is not None and item.made.operation == "loop"
        counted = item.promised is not None
        here = "the dataset says here how many samples there are" if item.made is item.promised and counted else f"{item.source} = {item.value} comes from here"
        culprits.create(item.made, f"{item.source} reaches {item.value} here" if loop else here)
        further = item.value - item.sample[1] if item.sample is not None else 0
        if base is not None and item.axis is not None and (item.made is None or counted and further <= 0):
            origin = base.origin_of(item.axis)
            culprits.create(origin, f"{called} has its {item.size} at dimension {item.axis} from here")
        facts = [
            Fact(f"{f'`{item.source}` is' if named else 'The index is'} {item.value}; dimension {item.axis} of {called} has size {item.size}; legal: {span}"
                 f"{f' (or -{item.size}…-1)' if item.size else ''}.", Known.OBSERVED)
        ]  # fmt: skip
        facts += operand_facts(operation, 3) + setting_facts(operation)
        off_by_one = item.value == item.size
        why = f"{called} has shape {shape(base.shape) if base else '?'}: at dimension {item.axis} there are {item.size} positions, counted from 0. "
        if off_by_one:
            why += f"{item.value} is one past the last."
        fixes = []
        if counted and further > 0 and item.sample is not None:
            facts.append(Fact(f"`{item.sample[0]}` is {item.sample[1]}, and `{item.sample[2]}` {further} more: {item.size} values are enough for {max(item.size - further, 0)} samples.", Known.OBSERVED))
            fixes.append(f"A DataLoader asks for as many samples as `__len__` says: let it return {max(item.size - further, 0)}.")
        elif counted:
            fixes.append(f"A DataLoader asks for as many samples as `__len__` says: let it return at most the {item.size} that {called} has, or make {called} longer.")
        elif off_by_one and loop:
            fixes.append(f"Count to `{called.strip('`')}.shape[{item.axis}]`: the loop runs once too often.")
        elif off_by_one:
            fixes.append(f"The last position is {item.size - 1}, or -1.")
        else:
            several = base is None or len(base.shape) > 1
            fixes.append(f"Index the dimension you mean: {called} is {shape(base.shape) if base else '?'}, or make that dimension larger." if several
                         else f"Keep the index within 0…{item.size - 1}, or make {called} larger.")  # fmt: skip
        title = f"{code(operation.place.source)} asks for position {item.value} of a dimension of size {item.size}"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(*fixes))

    # -- what the message says ---------------------------------------------------------------------

    def _message(self, operation: FailedOperation) -> Diagnosis | None:
        message = operation.message
        numbers = re.search(r"index (-?\d+) (?:is )?out of (?:bounds|range)(?: for)?.*?dimension (\d+)?(?: with size (\d+))?", message)
        select = re.search(r"index (-?\d+) out of range for tensor of size \[([^\]]*)\] at dimension (\d+)", message)
        bag = re.search(r"Index (\d+) of input takes value (-?\d+) which is not in the valid range \[0, (\d+)\)", message)
        plain = re.search(r"index (-?\d+) is out of range", message)
        facts: list[Fact] = []
        culprits = Culprits()
        value = None
        table = operation.operand("weight") if operation.name in _EMBEDDINGS else operation.operand("self", "input")
        if select:
            sizes = [int(size) for size in select[2].split(",") if size.strip()]
            value, axis = int(select[1]), int(select[3])
            facts.append(Fact(f"Index {value} of dimension {axis}, which has size {sizes[axis]}; the tensor has shape {shape(sizes)}; "
                              f"legal: {_span(sizes[axis])}.", Known.OBSERVED))  # fmt: skip
        elif bag:
            value = int(bag[2])
            facts.append(Fact(f"Value {value} at flat position {bag[1]}; legal: 0…{int(bag[3]) - 1}.", Known.OBSERVED))
        elif numbers:
            value = int(numbers[1])
            if numbers[3]:
                facts.append(Fact(f"Index {value}; the dimension has size {numbers[3]}; legal: {_span(int(numbers[3]))}.", Known.OBSERVED))
        elif plain:
            value = int(plain[1])
        if (part := re.search(r"start \((-?\d+)\) \+ length \((\d+)\) exceeds dimension size \((\d+)\)", message)) and table is not None:
            return self._part(operation, table, *map(int, part.groups()))
        index = operation.operand("index", "indices", "input", "index[0]") if operation.name != "select" else None
        argument = operation.argument("index", "idx")
        label = f"asks for index {value}" if value is not None else "holds an index that is out of range"
        culprits.lead(operation, Role.INDEX, label, index)
        if argument is not None and argument.value:
            facts.append(Fact(f"{argument_fact(argument)}.", Known.OBSERVED))
            culprits.create(argument.made, f"{argument.source} = {argument.value} comes from here")
        for name in ("start", "length", "dim"):
            own = operation.argument(name)
            if own is not None and own.value and operation.name.startswith("narrow"):
                facts.append(Fact(f"The message is about {argument_fact(own)}.", Known.OBSERVED))
                culprits.create(own.made, f"{own.source} = {own.value} comes from here")
        if index is not None and index is not table:
            culprits.create(index.value_made or index.made, f"{index.called} comes from here")
        if table is not None and select and table.shape == tuple(sizes):
            culprits.create(table.origin_of(axis), f"{table.called} has its {sizes[axis]} at dimension {axis} from here")
        facts += operand_facts(operation, 4) + setting_facts(operation)
        title = f"{code(operation.place.source)} asks for index {value}, which is out of range" if value is not None else (
            f"{code(operation.place.source)} uses an index that is out of range")  # fmt: skip
        why = "A dimension of size n has the positions 0 … n-1"
        why += ", and -1 … -n from the end." if operation.name in ("__getitem__", "__setitem__", "select", "index", "narrow") else "."
        return Diagnosis(self.name, title, Confidence.LIKELY, culprits.done(), tuple(facts), why)


    def _part(self, operation: FailedOperation, table: Operand, start: int, length: int, size: int) -> Diagnosis:
        """`narrow` past the end, which is not cut off as a slice is."""
        culprits, facts = Culprits(), []
        culprits.lead(operation, Role.INDEX, f"{start} + {length} = {start + length}; the dimension has size {size}")
        for name in ("start", "length", "dim"):
            own = operation.argument(name)
            if own is not None and own.value:
                facts.append(Fact(f"{argument_fact(own)}.", Known.OBSERVED))
                culprits.create(own.made, f"{own.source} = {own.value} comes from here")
        dim = operation.argument("dim")
        axis = dim.numbers[0] % len(table.shape) if dim is not None and dim.numbers and table.shape else None
        if axis is not None and table.shape[axis] == size:
            culprits.create(table.origin_of(axis), f"{table.called} has its {size} at dimension {axis} from here")
        facts += operand_facts(operation, 4) + setting_facts(operation)
        title = f"{code(operation.place.source)} asks for positions {start}…{start + length - 1} of a dimension of size {size}"
        why = f"`narrow` takes exactly `length` positions from `start` on: {start} + {length} must not be more than {size}. (A slice, `x[{start}:{start + length}]`, would be cut off at the end.)"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(f"Keep `start + length` within {size}: `min(length, {size} - start)`, or pad the tensor."))


def _span(size: int) -> str:
    return f"0…{size - 1} (or -{size}…-1)" if size else "none, it is empty"


def _is_outside(item: IndexItem) -> bool:
    return item.kind == "int" and item.value is not None and item.size is not None and not -item.size <= item.value < item.size


def _made(table: Operand, operation: FailedOperation) -> str:
    words = made_words(table.made, operation)
    return f", made by {words}" if words else ""


def _may_be_too_small(operation: FailedOperation, values: ValueRange) -> bool:
    """Values and size do not fit one another, and either may be the wrong one; not so for values below 0, for segments, and for
    values that count from 1 in a dimension of just as many."""
    if values.minimum < 0 or values.maximum <= values.high or _are_segments(operation):
        return False
    return values.limit == "rows" or not values.counts_from_one


def _is_declared(made: Made | None) -> bool:
    """A size that somebody has set: a layer's, or a number that the call was given. The length of data is nobody's mistake."""
    return made is not None and (made.given is not None or re.match(r"(\w+\.)*[A-Z]\w*(?<!Tensor)\(", made.place.source) is not None)


def _limiting_axis(values: ValueRange) -> int | None:
    said = re.fullmatch(r"dimension (\d+)", values.limit)
    return int(said[1]) if said else None


def _are_segments(operation: FailedOperation) -> bool:
    return "token_type" in operation.module.lower() or "segment" in operation.module.lower()


def _misleading(operation: FailedOperation, limit: str) -> list[Fact]:
    said = re.search(r"out of bounds for dimension (\d+)", operation.message)
    if said and limit.startswith("dimension ") and limit != f"dimension {said[1]}" and operation.index:
        return [Fact(f"The message says dimension {said[1]}; in your tensor it is {limit}: torch counts only the indexed ones.", Known.OBSERVED)]
    return []


def _story(operation: FailedOperation, bad: Operand, table: Operand | None) -> tuple[str, list[str], bool]:
    """What the value tells: (story, advice, whether it is inferred)."""
    values = bad.values
    assert values is not None
    path = operation.module.lower()
    rows = int(values.high) + 1
    if -100 in values.distinct:
        return (
            "-100 is the label that losses ignore (`ignore_index`); here it is used as an index.",
            [f"Replace it before indexing, e.g. `{_name(bad)}.masked_fill({_name(bad)} == -100, pad_id)`; keep -100 for the loss only."],
            False,
        )
    positions = _are_positions(operation, bad)
    if operation.name not in _EMBEDDINGS and not (positions and operation.place.in_library):
        if values.counts_from_one:
            return ("The values run from 1: they seem to count from 1.", [f"Subtract 1: `{_name(bad)} - 1`, and likewise from whatever else counts as it does."], True)
        if values.minimum < 0 and values.low == 0:
            return ("This operation does not count negative indices from the end.", ["Use non-negative indices."], False)
        return ("", [f"Keep the values of {bad.called} within {legal(values)}, or make that dimension larger."], False)
    if _are_segments(operation):
        return (
            f"These are token types (segments); the model knows {rows} of them.",
            ["Pass token_type_ids below that number, or none, or set `type_vocab_size` in the config."],
            False,
        )
    if positions:
        story = f"These are positions: the sequence is longer than the {rows} positions that the model has."
        if "roberta" in " ".join((path, operation.place.span.file)).lower():
            story += " RoBERTa-style models count positions from padding_idx + 1, so they take two tokens fewer than the table has rows."
        own = f"Cut the sequence to {rows} positions before the model (`ids[:, -{rows}:]` keeps the newest), or make the table larger."
        return story, [TRUNCATE if operation.place.in_library else own], False
    if values.minimum < 0:
        return "An embedding does not count negative ids from the end.", ["Use ids from 0 on, e.g. a row of its own for padding."], False
    if values.counts_from_one:
        return (
            f"The ids run from 1 to {rows}, and none is 0: they may count from 1, or the table lacks one row.",
            [f"Give the table one row more (`num_embeddings={rows + 1}`), or subtract 1 from the ids."],
            True,
        )
    over = int(values.maximum) - rows + 1
    if "word_embeddings" in path or "wte" in path or "embed_tokens" in path or "shared" in path:
        return (
            f"The largest id, {values.maximum}, is {over} past the last row: as when tokens were added to the tokenizer and the model was not resized.",
            ["After adding tokens: `model.resize_token_embeddings(len(tokenizer))`; make sure that tokenizer and model belong together."],
            True,
        )
    return (
        "",
        [f"Make the table large enough (`num_embeddings` at least {int(values.maximum) + 1}), or correct the ids where they are made."],
        False,
    )


def _are_positions(operation: FailedOperation, index: Operand) -> bool:
    counted = operation.name in _EMBEDDINGS and index.value_made is not None and index.value_made.operation == "arange"
    return counted or is_about_positions(operation, index.source) and "token_type" not in operation.module


def _name(operand: Operand) -> str:
    return expr(operand, "ids")
