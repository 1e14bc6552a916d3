"""A tensor of many elements where Python needs one number or one truth value."""

from __future__ import annotations

import dataclasses

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, failed, line_of, shape


class ScalarConversion(CrashRule):
    """A tensor with several elements is used where Python needs a single number or a truth value.

    What happened
    -------------
    `item()`, `int(x)`, `float(x)` and `if x:` ask a tensor for one value. It has several. (An empty tensor in an `if`
    counts as ambiguous, too.)

    Why
    ---
    Typical: a loss without reduction; a comparison of whole tensors in an `if`, where `.all()` or `.any()` is meant; a
    batch where one sample was expected.

    Example
    -------
    This raises "Boolean value of Tensor with more than one value is ambiguous":

        import torch

        x = torch.tensor([1.0, -1.0])
        if x > 0:
            pass

    Fix
    ---
    Say how the elements are combined: `(x > 0).all()`, `.any()`, `loss.mean()`; `tolist()` for all values.

    Common false explanations
    -------------------------
    "`and` works on tensors like `&`." `and` asks for a truth value; `&` works on elements. This prints a tensor:

        import torch

        x = torch.tensor([1.0, -1.0])
        print((x > 0) & (x < 2))
    """

    name = "not-a-scalar"
    messages = (
        r"Boolean value of Tensor with (more than one|no) value",
        r"a Tensor with \d+ elements cannot be converted to Scalar",
        r"only one element tensors can be converted to Python scalars",
        r"only integer tensors of a single element can be converted to an index",
    )
    needs = ("operation",)
    priority = 5

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        tensor = operation.operands[0] if operation.operands else None
        called = tensor.called if tensor is not None else code(operation.place.source)
        boolean = "Boolean" in operation.message
        result = next((o for o in operation.operands[1:] if o.tensor.dtype == "bool" and not o.source), None)
        if boolean and result is not None:  # `x < y` was computed; it is what has no truth value
            called = code(operation.place.source)
            rest = tuple(o for o in operation.operands if o is not result)
            operation = dataclasses.replace(operation, operands=rest)
        sizes = (result or tensor).shape if tensor is not None else None
        title = f"{called}{f' {shape(sizes)}' if sizes is not None else ''} has several elements; Python asked for {'one truth value' if boolean else 'one number'}"
        fixes = ["`.all()` or `.any()`, whichever is meant; `&`, `|`, `~` instead of `and`, `or`, `not`."] if boolean else ["Reduce first (`.mean()`, `.sum()`, an index), or `.tolist()` for all values."]
        return report(self.name, operation, title=title, label="several elements", lead=tensor, why=f"torch says: {line_of(operation.message)}",
                      creates=[of_tensor(tensor)], fixes=fixes)  # fmt: skip
