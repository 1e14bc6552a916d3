"""Operands of dtypes that do not go together."""

from __future__ import annotations

import re
from collections import Counter

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, expr, failed, fully, line_of, made_words, seen, shape, users


class DtypeMismatch(CrashRule):
    """An operation gets tensors of different dtypes, or of one that it does not work for.

    What happened
    -------------
    Matrix products, convolutions, recurrent and normalisation layers need one dtype for inputs and weights.
    Element-wise arithmetic promotes types by itself. Some operations have no version for integers or for float16.

    Why
    ---
    Typical: numpy makes float64, torch's layers are float32; integer data goes straight into a layer; a model is in
    half precision and its input is not; `softmax` or `mean` of integers; an in-place write of floats into integers.

    Example
    -------
    This raises "mat1 and mat2 must have the same dtype, but got Double and Float":

        import torch

        layer = torch.nn.Linear(4, 3)
        layer(torch.zeros(2, 4, dtype=torch.float64))      # as torch.from_numpy gives it

    Fix
    ---
    Convert the odd one where it is made: `x.float()`, `torch.from_numpy(a).float()`, `x.to(weight.dtype)`.

    Common false explanations
    -------------------------
    "torch never mixes dtypes." Element-wise operations do. This prints torch.float64:

        import torch

        print((torch.zeros(2) + torch.zeros(2, dtype=torch.float64)).dtype)
    """

    name = "dtype-mismatch"
    messages = (
        r"must have the same dtype",
        r"to have (the )?same dtype",
        r"must have the same scalar type",
        r"expected scalar type \w+ but found \w+",
        r"Input type \(.*\) and (bias|weight) type \(.*\) should be the same",
        r"not implemented for '\w+'",
        r"can't be cast to the desired output type",
        r"Index put requires the source and destination dtypes match",
        r"Expected self\.dtype to be equal to src\.dtype",
        r"could not infer output dtype",
        r"Expected object of scalar type",
        r"mixed dtype \(CPU\)",
        r"does not match weight dtype",
        r"not the same dtype",
        r"dtype must be a floating point",
        r"expected both vectors to have same dtype",
        r"with (two bool tensors|a bool tensor) is not supported|on a bool tensor is not supported",
        r"[Ee]xpected .* dtype",
        r"must be either float or double dtype",
        r"[Oo]nly Tensors of floating point (and complex )?dtype can require gradients",
        r"only supports? (floating|complex|integer|integral)",
        r"Found dtype \w+ but expected \w+",
        r"expected m1 and m2",
    )
    needs = ("operation",)
    priority = 8

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        lacking = re.search(r"\"?(\w*)\"? not implemented for '(\w+)'", message)
        if lacking:
            return self._lacking(operation, lacking[1], lacking[2])
        # Indices and masks have a dtype of their own; they do not count here.
        operands = [operand for operand in operation.operands if not operand.argument.startswith(("index", "indices", "mask", "condition"))]
        said = re.search(r"input dtype \(torch\.(\w+)\) does not match weight dtype \(torch\.(\w+)\)", message)
        given = operation.operand("input")
        if said and given is not None:
            return _of_layer(self.name, operation, given, said[1], said[2])
        dtypes = {operand.tensor.dtype for operand in operands}
        if len(dtypes) < 2:
            lead = operands[0] if operands else None
            what = {"sub": "-", "rsub": "-", "_make_subclass": "Parameter"}.get(operation.name, operation.name)
            return report(self.name, operation, title=f"`{what}` does not take {', '.join(sorted(dtypes)) or 'this dtype'}: {code(operation.place.source)}",
                          label=f"dtype {lead.tensor.dtype}" if lead else "wrong dtype", lead=lead, why=f"torch says: {message}",
                          creates=[(lead.dtype_made, f"{lead.called} gets its dtype {lead.tensor.dtype} here")] if lead else [],
                          fixes=_single_fix(lead, message))  # fmt: skip
        odd, usual = _odd(operands, message)
        if "can't be cast" in message and operands:
            # What is written has the dtype that the message calls the output's. A loss writes too: into a copy of its target.
            output = re.search(r"desired output type (\w+)", message)
            odd = next((o for o in operands if output and o.tensor.dtype == _DTYPES.get(output[1])), operands[0])
            usual = next((o.tensor.dtype for o in operands if o.tensor.dtype != odd.tensor.dtype), "")
        written = operation.operand("value", "src", "source", "values")
        if written is not None and operands and written is not operands[0] and re.search(_INTO, message):
            odd, usual = written, operands[0].tensor.dtype  # what is written to decides
        weights = next((o for o in operands if o.tensor.kind in ("parameter", "buffer") and o is not odd), None)
        out = operation.operand("out")
        if out is not None and re.search(r"\bout\b", message):
            odd, usual = out, next((o.tensor.dtype for o in operands if o.tensor.dtype != out.tensor.dtype), usual)
        facts = [seen(f"{fully(operand)} {shape(operand.shape)} is {operand.tensor.dtype}{_from(operand, operation)}.") for operand in operation.operands[:6]]
        wanted = f"torch.{usual}"
        fixes = [f"`{odd.source}.to({wanted})`, best where it is made." if odd.source else f"Bring {odd.called} to {usual}, best where it gets its dtype."]
        if odd.promoted is not None and odd.dtype_made is not None and odd.lowered is None:
            fixes = [f"Make {code(users(odd.dtype_made.place).source)} {usual}, where it is made or where it is used."]
        if "can't be cast" in message:
            fixes = [f"Write the result into a new tensor, or make {odd.called} {usual} where it is made."]
        elif weights is None and odd.tensor.kind == "parameter":
            fixes = [f"Give the layer inputs of dtype {odd.tensor.dtype}, or convert the model (`model.to({wanted})`)."]
        return report(
            self.name, operation, title=f"{odd.called} is {odd.tensor.dtype}, {_others(operands, odd)}",
            label=f"dtype {odd.tensor.dtype}; {usual} is needed", lead=odd if odd.place is not None else None,
            why=_autocast(odd) + f"`{operation.name}` does not convert dtypes by itself; {odd.called} is the odd one out. torch says: {message}",
            creates=_lowered(odd) or _promoted(odd, usual) or _converted(odd, weights) or [(odd.dtype_made, f"{odd.called} gets its dtype {odd.tensor.dtype} here"), *_asked_for(operands, odd)], facts=facts, fixes=fixes, shown=0,
        )  # fmt: skip

    def _lacking(self, operation: FailedOperation, kernel: str, dtype: str) -> Diagnosis:
        wanted = _DTYPES.get(dtype, dtype.lower())
        odd = next((operand for operand in operation.operands if operand.tensor.dtype == wanted), operation.operands[0] if operation.operands else None)
        fixes = ["Convert to floating point where it is made: `.float()`."] if dtype in ("Long", "Int", "Bool", "Byte", "Short", "Char") else (
            ["On a CPU compute in float32 (`.float()`) or bfloat16; float16 is for GPUs."] if dtype == "Half" else [f"Convert from {wanted} to another dtype."])  # fmt: skip
        what = operation.name or kernel
        return report(self.name, operation, title=f"`{what}` does not work for {wanted}{f': {odd.called}' if odd else ''}", label=f"dtype {wanted}", lead=odd,
                      why=f"torch has no `{what}` for {wanted} on this device.", creates=[(odd.dtype_made, f"{odd.called} gets its dtype {wanted} here")] if odd else [], fixes=fixes)  # fmt: skip


def _of_layer(rule: str, operation: FailedOperation, given: Operand, dtype: str, wanted: str) -> Diagnosis:
    """A recurrent layer compares its input with its weights before anything is computed."""
    layer = f"`{operation.module}`" if operation.module else f"the {operation.module_type or 'layer'}"
    made = operation.module_made
    facts = [seen(f"{fully(given)} {shape(given.shape)} is {dtype}{_from(given, operation)}."), seen(f"The weights of {layer} are {wanted}{f', made by {made_words(made, operation)}' if made is not None else ''}.")]
    return report(
        rule, operation, title=f"{given.called} is {dtype}, the weights of {layer} are {wanted}", label=f"dtype {dtype}; {wanted} is needed", lead=given,
        why=f"{operation.module_type or 'The layer'} does not convert dtypes by itself: input and weights must have the same.",
        creates=_lowered(given) or _promoted(given, wanted) or [(given.dtype_made, f"{given.called} gets its dtype {dtype} here")], facts=facts, shown=0,
        fixes=[f"`{expr(given)}.to(torch.{wanted})`, best where it is made; or convert the model (`model.to(torch.{dtype})`)."],
    )  # fmt: skip


# What is written into another tensor has to have its dtype.
_INTO = r"destination dtypes match|self\.dtype to be equal to src|self \(\w+\) and source|self and source expected to have"

_DTYPES = {"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "Half": "float16",
           "BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64", "ComplexDouble": "complex128"}  # fmt: skip


def _lowered(odd: Operand) -> list[tuple[Made | None, str]]:
    return [(odd.lowered, f"autocast makes this {odd.tensor.dtype}")] if odd.lowered is not None else []


def _autocast(odd: Operand) -> str:
    return f"Under `torch.autocast`, layers and matrix products give {odd.tensor.dtype}, though their weights are of another dtype. " if odd.lowered is not None else ""


def _promoted(odd: Operand, usual: str) -> list[tuple[Made | None, str]]:
    """Two dtypes met on the way, and the wider one was kept: the line where they met, and the tensor that brought it in."""
    if odd.promoted is None or odd.dtype_made is None:
        return []
    return [(odd.dtype_made, f"the dtype {odd.tensor.dtype} comes from here"), (odd.promoted, f"{odd.tensor.dtype} met another dtype here, and was kept")]


def _converted(odd: Operand, weights: Operand | None) -> list[tuple[Made | None, str]]:
    """Weights that are not in float32, torch's own choice, while the input is: somebody has made them so."""
    if weights is None or odd.tensor.dtype != "float32" or weights.tensor.dtype in ("float32", "") or weights.dtype_made is None:
        return []
    return [(weights.dtype_made, f"{weights.called} gets its dtype {weights.tensor.dtype} here")]


def _asked_for(operands: list[Operand], odd: Operand) -> list[tuple[Made | None, str]]:
    """The other one of two, where its own dtype was asked for by name: `torch.zeros(3, dtype=torch.float16)`, `.half()`."""
    others = [operand for operand in operands if operand is not odd]
    made = others[0].dtype_made if len(others) == 1 else None
    place = users(made.place) if made is not None else None
    asked = place is not None and re.search(r"dtype\s*=|\.(half|bfloat16|double|float|long|int|bool|to|type)\(", place.source)
    return [(made, f"{others[0].called} gets its dtype {others[0].tensor.dtype} here")] if asked else []


def _odd(operands: list[Operand], message: str) -> tuple[Operand, str]:
    """The odd one out: the input against the parameters; else the one whose dtype is rarest; else the less usual dtype."""
    parameters = [operand for operand in operands if operand.tensor.kind in ("parameter", "buffer")]
    others = [operand for operand in operands if operand.tensor.kind not in ("parameter", "buffer")]
    if parameters and others:
        usual = Counter(operand.tensor.dtype for operand in parameters).most_common(1)[0][0]
        odd = [operand for operand in others if operand.tensor.dtype != usual]
        if odd:
            if usual in ("float16", "bfloat16", "float64") and odd[0].tensor.dtype == "float32":
                return odd[0], usual
            return odd[0], usual
    counts = Counter(operand.tensor.dtype for operand in operands)
    (usual, most), *rest = counts.most_common()
    if rest and rest[0][1] == most:
        usual = "float32" if "float32" in counts else next((d for d in counts if d.startswith(("float", "bfloat"))), usual)
    odd = next(operand for operand in operands if operand.tensor.dtype != usual)
    return odd, usual


def _others(operands: list[Operand], odd: Operand) -> str:
    rest = [operand for operand in operands if operand is not odd]
    dtypes = list(dict.fromkeys(operand.tensor.dtype for operand in rest))
    return f"the {'other is' if len(rest) == 1 else 'others are'} {' and '.join(dtypes)}"


def _from(operand: Operand, operation: FailedOperation) -> str:
    words = made_words(operand.lowered or operand.dtype_made, operation)
    return f", from {words}" if words else ""


def _single_fix(lead: Operand | None, message: str) -> list[str]:
    if lead is None:
        return []
    name = expr(lead, "x")
    if "bool tensor" in message:
        return ["For masks use `~mask`, `&`, `|` and `^`."]
    if lead.tensor.dtype.startswith(("int", "uint", "bool")):
        return [f"`{name}.float()`."]
    return []
