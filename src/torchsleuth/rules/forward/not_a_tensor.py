"""Something else stands where a tensor is wanted: a tuple, None, a list, an array."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Foreign, Made
from torchsleuth.model import Confidence, Diagnosis, Fact, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import code, failed, inferred, line_of, made_words, operand_facts, seen, setting_facts, users

# What torch's layers return that return more than one tensor.
_RESULTS = {
    "LSTM": ("output", "(h_n, c_n)"), "GRU": ("output", "h_n"), "RNN": ("output", "h_n"), "MultiheadAttention": ("attn_output", "attn_output_weights"),
    "LSTMCell": ("h", "c"),
}  # fmt: skip


class NotATensor(CrashRule):
    """A tuple, a list, None, a numpy array or a number was given where a tensor is wanted.

    What happened
    -------------
    A layer or a function of torch's got something that is no tensor, or an attribute of tensors was asked of it. The report says
    what it is, what it holds, and which call handed it over.

    Why
    ---
    Some layers return several things: an LSTM its output and its state, attention its output and its weights. A function without a
    `return` returns None; a comma at the end of a line makes a tuple; a list of tensors is no tensor, and neither is a numpy array.

    Example
    -------
    This raises "argument 'input' (position 1) must be Tensor, not tuple":

        import torch
        from torch import nn

        rnn, head = nn.LSTM(4, 8), nn.Linear(8, 2)
        head(rnn(torch.zeros(5, 3, 4)))

    Fix
    ---
    Take the tensor that is meant out of what the call returned: `output, state = rnn(x)`.

    Common false explanations
    -------------------------
    "The shapes or the dtypes do not fit": torch has looked at neither. This prints the type that was given:

        import torch
        from torch import nn

        print(type(nn.LSTM(4, 8)(torch.zeros(5, 3, 4))))
    """

    name = "not-a-tensor"
    messages = (
        r"must be (Tensor|tuple of Tensors), not ", r"expected Tensor as element \d+ in argument", r"unsupported operand type\(s\) for .*'(Tensor|Parameter|NoneType|tuple|list|dict)'",
        r"can't multiply sequence by non-int of type 'float'",
        r"received an invalid combination of arguments - got \(", r"object has no attribute '\w+'",
    )  # fmt: skip
    needs = ("operation",)
    priority = 30

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        given = operation.foreign if operation is not None else None
        if operation is None or given is None:
            return None
        culprits = Culprits()
        called = f"`{given.source}`" if given.source else f"The {given.argument or 'input'} of `{operation.module or operation.name}`"
        label = f"{_short(given)}, no tensor" if given.kind != "tensor" else "one tensor, not a list of them"
        _lead(culprits, operation, given, label)
        _creates(culprits, given)
        facts = [seen(f"{called} is {given.words}.")] + _facts(given)
        facts += operand_facts(operation, 4) if given.kind not in ("tuple", "list") else []
        facts += setting_facts(operation)
        title = f"{called} is {given.words}; {_wanted(operation, given)}"
        why = f"{_why(given)}{operation.type or evidence.exception.type}: {line_of(operation.message)}"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(*_fixes(operation, given)))


def _wanted(operation: FailedOperation, given: Foreign) -> str:
    if given.kind == "tensor":
        return f"`{operation.name}` takes a list of tensors"
    asked = re.search(r"has no attribute '(\w+)'", operation.message)
    if asked and not given.argument:
        return f"`.{asked[1]}` belongs to tensors"
    where = f"`{operation.module}` ({operation.module_type})" if operation.module else f"`{operation.name}`" if operation.name else "the operation"
    return f"{where} takes a tensor"


def _lead(culprits: Culprits, operation: FailedOperation, given: Foreign, label: str) -> None:
    place = users(operation.place)
    inside = place is not None and given.place is not None and not given.place.in_library and given.place.span.file == place.span.file
    if inside and place.span.line <= given.place.span.line <= place.span.end_line:  # type: ignore[union-attr]
        culprits.add(given.place, Role.OPERAND, label)
    else:
        culprits.lead(operation, Role.OPERAND, label)


def _creates(culprits: Culprits, given: Foreign) -> None:
    if given.made is not None:
        culprits.create(given.made, _made_label(given))
    if given.story == "chain":
        culprits.create(given.layer_made, _layer_label(given))
        culprits.create(given.taker_made, f"{_article(given.taker)} takes one tensor")
    elif given.layer_made is not None:
        labels = {"some return": f"{given.maker} returns None this way" if given.layer_made.place.source.startswith("return") else f"{given.maker} can end without a return", "no return": f"{given.maker} returns nothing", "comma": "the comma makes a tuple"}
        culprits.create(given.layer_made, labels.get(given.story, f"{given.maker} returns this"))


def _made_label(given: Foreign) -> str:
    if given.story == "comma" and given.layer_made is None:
        return "the comma makes a tuple of this"
    if given.story == "batch":
        return "a DataLoader hands over all parts of the samples together"
    return f"{given.source} comes from here" if given.source else "it comes from here"


def _short(given: Foreign) -> str:
    return re.sub(r"( \[|[:,]).*", "", given.words) if given.kind in ("tuple", "list") else given.words


def _layer_label(given: Foreign) -> str:
    results = _RESULTS.get(given.maker)
    return f"{_article(given.maker)} returns ({', '.join(results)})" if results else f"{_article(given.maker)} returns {given.words}"


def _article(word: str) -> str:
    """`an LSTM`: abbreviations are spelt out."""
    return f"{'an' if word[:1] in 'AEIOU' or re.match('[LMRFHNSX][A-Z]', word) else 'a'} {word}"


def _facts(given: Foreign) -> list[Fact]:
    results = _RESULTS.get(given.maker)
    if results and given.story in ("layer", "chain"):
        return [seen(f"`nn.{given.maker}` returns two things: {results[0]} and {results[1]}.")]
    if given.story == "returns":
        return [inferred(f"`{given.maker}` returns {given.words}: {made_words(given.layer_made)}.")]
    if given.story == "no return":
        return [inferred(f"`{given.maker}` has no `return` with a value, so it returns None.")]
    if given.story == "some return":
        return [inferred(f"`{given.maker}` returns a value on some ways only; on the others it returns None.")]
    if given.kind == "None" and given.source.endswith(".grad"):
        return [seen("`.grad` is None until a `backward` has reached the tensor.")]
    return []


def _why(given: Foreign) -> str:
    if given.story == "comma":
        return "A comma at the end of an expression makes a tuple of it. "
    if given.story == "chain":
        return "An `nn.Sequential` hands on what each layer returns, as it is. "
    return ""


def _fixes(operation: FailedOperation, given: Foreign) -> list[str]:
    name, results = given.source or "x", _RESULTS.get(given.maker)
    call = _call_text(given.made) or given.source or "…"
    if given.kind == "tensor":
        others = [operand.source for operand in operation.operands if operand.source and operand.source != given.source]
        return [f"Put the tensors into a list: `torch.{operation.name}([{', '.join([given.source or 'a', *(others or ['b'])])}])`."]
    if given.story == "batch":
        if given.kind in ("list", "tuple"):
            count = len(given.shapes)
            names = {1: "(inputs,)", 2: "inputs, targets", 3: "first, second, third"}.get(count, "first, *others")
            return [f"Take it apart: `inputs, targets = {name}`, or in the loop itself: `for inputs, targets in loader:`." if count == 2 else
                    f"Take it apart in the loop, `for {names} in loader:`, and give on the part that is meant."]  # fmt: skip
        return [f"Take the entry that is meant: {' or '.join(f'`{name}[{part!r}]`' for part in given.parts[:4])}."]
    if given.story == "chain":
        return [f"Take the {given.maker} out of the Sequential and call it itself, `{results[0] if results else 'output'}, _ = self.{given.maker.lower()}(x)`; "
                f"or put a small module behind it whose `forward(self, x)` returns `x[0]`."]  # fmt: skip
    if given.story == "comma":
        return ["Drop the comma at the end."]
    if given.story == "no return":
        return [f"End `{given.maker}` with `return ...`, the tensor that it computes."]
    if given.story == "some return":
        return [f"Return a tensor from `{given.maker}` in every case, or ask before it is used: `if {name} is not None:`."]
    if given.story == "layer" and results:
        return [f"`{results[0]}, {'weights' if 'Attention' in given.maker else 'state'} = {call}`, and give {results[0]} on."]
    if given.parts:
        entry = [f'`{name}["{part}"]`' if given.kind == "dict" else f"`{name}.{part}`" for part in given.parts[:4]]
        return [f"Take the tensor that is meant: {' or '.join(entry)}."]
    if given.story == "returns" or given.kind == "tuple":
        return [f"Take the tensor that is meant: `{name}[0]`, or unpack it where it is made: `first, *rest = {call}`." if "of one" not in given.words else f"Take the tensor out of it: `{name}[0]`."]
    if given.kind == "list":
        return [f"`torch.stack({name})` makes one tensor of tensors of one shape (`torch.cat` joins along a dimension)." if "tensor" in given.words else f"`torch.tensor({name})`."]
    if given.kind == "array":
        return [f"`torch.from_numpy({name})`" + (", with `.float()`: layers compute in float32." if "float64" in given.words else ".")]
    if given.kind == "number":
        return [f"`torch.tensor({name})`, or Python's own function: `math.{operation.name}({name})`." if operation.name in ("sqrt", "exp", "log", "sin", "cos", "tanh") else f"`torch.tensor({name})`."]
    if given.kind == "None" and name.endswith(".grad"):
        return [f"Call `backward()` on a loss that `{name.removesuffix('.grad')}` went into before reading it."]
    return [f"See that {code(call)} gives a tensor."] if given.kind == "None" else []


def _call_text(made: Made | None) -> str:
    return made.place.source if made is not None and "\n" not in made.place.source else ""
