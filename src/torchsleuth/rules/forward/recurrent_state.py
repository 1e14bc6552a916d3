"""Inputs and states that an RNN, LSTM or GRU does not take."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis, Fact
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import is_at_failure, of_axis, of_tensor, of_terms
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import argument_fact, bad_values, expr, failed, inferred, line_of, made_words, seen, shape, value_words
from torchsleuth.wording import upper_first


class RecurrentState(CrashRule):
    """A recurrent layer gets a state of another batch, an input of another width, or lengths that do not fit.

    What happened
    -------------
    A state has shape [layers × directions, batch, hidden], also with `batch_first=True`, which concerns only inputs and
    outputs. Its batch must be that of the input, and the last size of the input the layer's `input_size`.

    Why
    ---
    Typical: a state kept from the batch before meets the last, smaller batch; a state made for a fixed batch size;
    `batch_first` forgotten, so that time and batch are swapped; lengths not sorted or not one for each sample.

    Example
    -------
    This raises "Expected hidden size (1, 3, 8), got [1, 4, 8]":

        import torch

        layer = torch.nn.GRU(5, 8, batch_first=True)
        state = torch.zeros(1, 4, 8)                  # for batches of 4
        layer(torch.randn(3, 6, 5), state)            # the last batch has 3

    Fix
    ---
    Make the state from the input (`torch.zeros(1, x.size(0), hidden)`), or pass none (zeros are the default), or drop
    the last batch. For lengths: one for each sample, `enforce_sorted=False`.

    Common false explanations
    -------------------------
    "With `batch_first=True` the state has the batch first, too." It has not. This prints the state's shape:

        import torch

        _, state = torch.nn.GRU(5, 8, batch_first=True)(torch.randn(3, 6, 5))
        print(state.shape)
    """

    name = "recurrent-state"
    messages = (
        r"Expected hidden(\[\d\])? size",
        r"must be equal to input_size",
        r"(hx|cx|hidden).* should also be|For (un)?batched \d-D input",
        r"doesn't match hidden\d? batch size",
        r"has inconsistent (input|hidden)_size",
        r"(LSTM|GRU|RNN)(Cell)?: Expected",
        r"`?lengths`? array must be sorted|Expected `len\(lengths\)`|Length of all samples has to be greater than 0",
        r"start \(-?\d+\) \+ length \(\d+\) exceeds dimension size",
        r"Expected more than 1 batch|hidden has inconsistent|Expected cell state",
        r"index 1 is out of bounds for dimension 0 with size 1",
    )
    needs = ("operation",)
    priority = 12

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        given = operation.operand("input", "self")
        layer = f"`{operation.module}`" if operation.module else f"the {operation.module_type or 'recurrent layer'}"
        states = [o for o in (*operation.operands, *operation.call_operands) if o.argument.split("[")[0] in ("hx", "cx", "hidden", "h_0", "h0")]
        facts, fixes = [], []
        made = operation.module_made
        words = made_words(made, operation)
        if words:
            facts.append(seen(f"{layer} was made by {words}."))
        if "exceeds dimension size" in message:
            return self._packed_beyond(operation, layer)
        unpacked = "index 1 is out of bounds" in message and len(operation.operands) == 1
        state = operation.operand("hx") or (operation.operands[0] if unpacked else None)
        if operation.module_type == "LSTM" and state is not None and re.search(r"index 1 is out of bounds|should also be", message):
            return _one_state(self.name, operation, layer, state, facts)
        if "index 1 is out of bounds" in message:
            return None
        said = re.search(r"Expected hidden(?:\[(\d)\])? size \(([\d, ]+)\), got \[([\d, ]+)\]", message)
        if said:
            want = tuple(int(n) for n in said[2].split(",") if n.strip())
            have = tuple(int(n) for n in said[3].split(",") if n.strip())
            state = next((o for o in states if o.shape == have), states[0] if states else None)
            axis = next((k for k, (a, b) in enumerate(zip(want, have)) if a != b), 1)
            called = state.called if state is not None else "the state"
            batch = given.shape[1 if given and want[1] == given.shape[1] and want[1] != given.shape[0] else 0] if given and len(given.shape) == 3 else None
            creates, kept = [of_axis(state, axis)], None
            if axis == 1 and state is not None and state.source.startswith("self.") and (creates[0][0] is None or is_at_failure(creates[0][0], operation)):
                kept = state.made
                creates.append((kept, f"{called} of the batch before is kept here"))
            if axis == 1:
                facts.append(seen(f"{called} has a batch of {have[1]}; {given.called if given else 'the input'} {shape(given.shape) if given else ''} has {want[1]}."))
                at = next((k for k in (0, 1) if given is not None and len(given.shape) == 3 and given.shape[k] == want[1]), None)
                if at is not None:
                    creates.append(of_axis(given, at))
                fixes.append(f"Begin each batch without a state, `{state.source} = None`, or give the DataLoader `drop_last=True`, so that all batches have {have[1]} samples." if kept is not None and state is not None
                             else "Make the state from the input's own batch, pass none, or drop the last, smaller batch (`drop_last=True`).")  # fmt: skip
                if given is not None and len(given.shape) == 3 and have[1] == given.shape[1 - (at or 0)] and have[1] != batch:
                    if at == 0:  # it has `batch_first=True`
                        facts.append(inferred(f"The layer reads the batch at dimension 0 of the input; {have[1]} is dimension 1, the length of the sequences."))
                    else:
                        facts.append(inferred("The state's batch is the other of the input's first two dimensions: `batch_first` may be missing."))
                        fixes.append("If the batch comes first in the input, build the layer with `batch_first=True`.")
                        creates.append((made, "this layer reads the batch at dimension 1"))
            else:
                creates.append((operation.made_for(want[axis]), "the layer is made here"))
                fixes.append(f"Give the state the shape {shape(want)}: [layers × directions, batch, hidden].")
            return report(self.name, operation, title=f"{called} has shape {shape(have)}; {layer} needs {shape(want)} for this input", label=f"{shape(have)}; {shape(want)} is needed",
                          lead=state, why="The state has shape [layers × directions, batch, hidden], with the batch of the input, also when `batch_first=True`.",
                          creates=creates, facts=facts, fixes=fixes)  # fmt: skip
        if "lengths" in message or "Length of" in message:
            return self._lengths(operation, message)
        width = re.search(r"Expected (\d+), got (\d+)|got (\d+),? expected (\d+)|batch size (\d+) doesn't match hidden\d? batch size (\d+)", message)
        if width and given is not None and "hidden" not in message:
            want, have = (width[1], width[2]) if width[1] else (width[4], width[3])
            joined, sums = of_terms(operation, given, -1)
            return report(self.name, operation, title=f"{given.called} has {have} features; {layer} takes {want}", label=f"last size {have}; {want} is taken", lead=given,
                          why=f"The last dimension of the input must be the layer's input_size, {want}.", creates=[of_axis(given, -1), (operation.made_for(int(want)), f"the layer is made for {want} features here"), *joined],
                          facts=[*sums, *facts], fixes=[f"Build the layer with `input_size={have}`, or give it {want} features; check `batch_first`."])  # fmt: skip
        cell = self._cell(operation, message, given, states, layer, facts)
        if cell is not None:
            return cell
        state = states[0] if states else None
        creates = [of_tensor(state), of_tensor(given)] if state is not None else [of_tensor(given)]
        return report(self.name, operation, title=f"{layer} does not take this input and state", label="shapes do not fit", lead=state, why=f"torch says: {message}",
                      creates=creates, facts=facts)  # fmt: skip

    def _cell(self, operation: FailedOperation, message: str, given: Operand | None, states: list[Operand], layer: str, facts: list[Fact]) -> Diagnosis | None:
        """`GRUCell` and the like: one step, whose state is [batch, hidden]."""
        width = re.search(r"hidden(\d?) has inconsistent hidden_size: got (\d+),? expected (\d+)", message)
        batch = re.search(r"[Ii]nput batch size (\d+) doesn't match hidden(\d?) batch size (\d+)", message)
        if not width and not batch:
            return None
        axis, have, want = (-1, int(width[2]), int(width[3])) if width else (0, int(batch[3]), int(batch[1]))
        state = next((o for o in states if o.shape and o.shape[axis] == have), None)
        called = state.called if state is not None else "the state"
        creates = [of_axis(state, axis)] if state is not None else []
        if width:
            creates.append((operation.made_for(want), f"the cell is made for a state of {want} here"))
            title, label = f"{called} has {have} features; {layer} keeps a state of {want}", f"last size {have}; {want} is kept"
            fixes = [f"Give the cell `hidden_size={have}`, or make the state with {want} features; where it comes from another layer, build both with one size."]
        else:
            creates += [of_axis(given, 0)] if given is not None else []
            title, label = f"{called} has a batch of {have}; the input has {want}", f"a batch of {have}; the input has {want}"
            fixes = ["Make the state from the input's own batch, pass none, or drop the last, smaller batch (`drop_last=True`)."]
        return report(self.name, operation, title=upper_first(title), label=label, lead=state, why="The state of a cell has shape [batch, hidden], with the batch of the input.",
                      creates=creates, facts=facts, fixes=fixes)  # fmt: skip

    def _packed_beyond(self, operation: FailedOperation, layer: str) -> Diagnosis | None:
        """`pack_padded_sequence` believes the lengths: it packs fewer rows than they promise, and the layer runs out of them."""
        data, steps = operation.operand("input"), operation.operand("batch_sizes")
        if data is None or steps is None or len(steps.shape) != 1:
            return None
        called = data.source.partition("[")[0] or "the packed sequence"
        title = f"`{called}` was packed with lengths up to {steps.shape[0]}, longer than the padded sequences"
        facts = [seen(f"`{called}` has {steps.shape[0]} time steps, the longest of the lengths, and {data.shape[0]} rows of data: fewer than the lengths add up to.")]
        creates = [(data.made, f"it is packed here, with lengths up to {steps.shape[0]}")]
        why = f"`pack_padded_sequence` does not compare the lengths with the sequences; {layer} then asks for a row that is not there."
        fixes = ["Take the lengths of the sequences as they are packed, after they were cut: `lengths.clamp(max=x.size(1))` for a batch `x` [batch, time, ...]."]
        return report(self.name, operation, title=title, label=f"lengths up to {steps.shape[0]}", why=why, creates=creates, facts=facts, fixes=fixes, shown=2)

    def _lengths(self, operation: FailedOperation, message: str) -> Diagnosis:
        """`pack_padded_sequence`: not sorted, a sequence of length 0, or not one length for each sample."""
        lengths, data = operation.operand("lengths"), operation.operand("input")
        argument = operation.argument("lengths")
        written = argument is not None and argument.source and not (lengths is not None and lengths.source)  # a list, of which torch made a tensor
        called = f"`{argument.source}`" if written and argument is not None else lengths.called if lengths is not None else "the lengths"
        values = lengths.values if lengths is not None else None
        facts = [seen(f"{argument_fact(argument)}.")] if argument is not None and argument.value else []
        said = re.search(r"len\(lengths\)` to be equal to batch_size, but got (\d+) \(batch_size=(\d+)\)", message)
        if "sorted" in message:
            title, label = f"{called} is not in decreasing order", "not in decreasing order"
            why = "With `enforce_sorted=True`, the default, the sequences must come longest first. `enforce_sorted=False` lets torch sort them, and put the results back in order."
            fixes = ["Pass `enforce_sorted=False`."]
            if values is not None:
                facts.append(seen(f"{upper_first(called)} holds {values.total} lengths from {_plain(values.minimum)} to {_plain(values.maximum)}."))
        elif said:
            title, label = f"{called} holds {said[1]} lengths for a batch of {said[2]}", f"{said[1]} lengths, {said[2]} sequences"
            why = "Each sequence of the batch has one length. The batch is dimension 1 of the input, and dimension 0 with `batch_first=True`."
            fixes = ["One length for each sequence."]
            if data is not None and len(data.shape) > 1 and str(data.shape[0]) == said[1]:
                facts.append(inferred(f"Dimension 0 of {data.called} {shape(data.shape)} has size {said[1]}: `batch_first=True` may be missing."))
                fixes = ["Pass `batch_first=True`, if the batch comes first."]
        else:
            title, label = f"{called} holds a length of 0", "a length of 0"
            why = "A packed sequence has at least one element: a sequence of length 0 cannot be packed."
            fixes = ["Leave empty sequences out of the batch, or give them one padding token (`lengths.clamp(min=1)`)."]
            if values is not None and values.bad and lengths is not None:
                facts.append(seen(bad_values(lengths, values)))
        return report(self.name, operation, title=upper_first(title), label=label, lead=lengths, why=why,
                      creates=[_zero_made(lengths) or of_tensor(lengths), *([(argument.made, f"{argument.source} comes from here")] if argument is not None else [])],
                      facts=facts, fixes=fixes)  # fmt: skip


def _one_state(rule: str, operation: FailedOperation, layer: str, state: Operand, facts: list[Fact]) -> Diagnosis:
    """`lstm(x, h)`, as a GRU takes it."""
    return report(
        rule, operation, title=f"{layer} takes two states, `(h, c)`; {state.called} {shape(state.shape)} is one tensor", label="one tensor; a pair `(h, c)` is needed", lead=state,
        why="An LSTM keeps a hidden state and a cell state, and takes them as a pair. A single tensor is read as if its first two rows were the two.",
        creates=[of_tensor(state)], facts=facts, fixes=[f"Give it both: `({expr(state, 'h')}, c)`, or none, so that it starts from zeros."],
    )  # fmt: skip


def _zero_made(lengths: Operand | None) -> tuple[Made | None, str] | None:
    """Where the length came from that no sequence has."""
    values = lengths.values if lengths is not None else None
    if lengths is None or values is None or not values.bad or lengths.value_made is None:
        return None
    return lengths.value_made, value_words(lengths, f"the length {_plain(values.first[0].value)}")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
