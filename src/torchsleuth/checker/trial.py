"""The evidence of `check`: what was tried on one custom Function and what came back. Torch-free, frozen.

Rules under `rules/function/` read a `Trial` and word it; nothing here is a sentence for users, apart
from names, shapes and messages that were read from live objects. A `Trial` survives a round trip
through JSON (`model.to_plain` and `model.from_plain`).
"""

from __future__ import annotations

import typing

from torchsleuth.frozen import frozen
from torchsleuth.model import Culprit, Diagnosis, Edit
from torchsleuth.rule import Rule


@frozen
class TensorFact:
    """A tensor given to the Function or returned by it, or a plain value given to it."""

    position: int
    name: str
    tensor: bool = True
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    checked: bool = False  # its gradient was compared
    required: bool = False  # the user passed it with requires_grad=True
    value: str = ""  # a plain value, as written in Python


@frozen
class Size:
    """A number that a factor was recognised as: `name` is a dimension, a count or an argument."""

    kind: str  # "dimension" (of tensor, with dims), "elements" (of tensor), "argument", "one-minus" and "one-plus" (argument), "number"
    name: str
    value: float
    power: float = 1.0
    dims: tuple[int, ...] = ()


@frozen
class Relation:
    """How the returned gradient relates to the true one; `kind` says which of the fields count.

    factor          returned = factor x true; `sizes` says what the factor is, where that is known; `holds`: with other sizes too
    transposed      returned = true with dims[0] and dims[1] exchanged
    other-input     returned is the gradient of input `other`; `swapped`: and the other way round
    no-grad-output  returned does not depend on grad_output; `holds`: it is right when that is all ones
    reduction       the input was broadcast over `dims`; `detail`: mean, first, last, max, none-of, other-dims
    tensor-factor   `detail` "missing" or "extra": the elementwise factor `tensor`
    other-tensor    returned is right with `tensor` replaced by `instead`
    missing-term    the part of the derivative through `tensor` (source text, at `line`) is left out; `detail` only: it is all there is,
                    `factor` times; scaled: it is there `factor` times
    extra-term      returned = true + `tensor`
    scaled-part     the summand `tensor` of backward's formula, at `line`, has to be `factor` times as large (0: it does not belong there)
    passed-on       returned is the gradient of output `other` as it came
    wrong-axis      a sum over dims[0] should be over dims[1]
    adjoint         returned is J applied to grad_output, not its transpose
    rearranged      `detail`: flipped, or shifted, along dims[0]
    permuted        returned has the elements of the true gradient in another order
    inverted        returned is not zero exactly where the true gradient is
    redrawn         backward draws random numbers, at `line`, where forward's are wanted
    condition       right where `tensor` (a condition on elements) holds; wrong in the share `share`
    zero            returned is all zeros
    not-finite      returned has NaN or inf where the true gradient is finite
    lost-output     returned is the true gradient if output `other` is not used; `tensor` is what backward calls the gradient it ignores
    precision       returned is right to `factor` relative error only
    mended          an edit of the source made it right (`Finding.mend`), no other relation was found
    unknown
    """

    kind: str
    factor: float = 0.0
    sizes: tuple[Size, ...] = ()
    dims: tuple[int, ...] = ()
    other: int = -1
    swapped: bool = False
    holds: bool = False
    tensor: str = ""
    instead: str = ""
    line: int = 0
    share: float = 0.0
    detail: str = ""


@frozen
class Sample:
    """One element of a gradient: the largest difference found."""

    index: tuple[int, ...]
    returned: float
    true: float


@frozen
class Mend:
    """A change to the source under which every experiment came out right."""

    culprit: Culprit
    before: str
    after: str
    edit: Edit
    diff: str
    experiments: int


@frozen
class Finding:
    """One thing that is not as it should be. `kind` is what a rule looks for."""

    kind: str
    input: int = -1  # the forward input concerned, -1 for none
    case: str = ""  # the experiment that showed it: "" is the inputs as given
    case_text: str = ""  # the shapes of that experiment
    culprit: Culprit | None = None
    relation: Relation | None = None
    returned_shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    returned_dtype: str = ""
    expected_dtype: str = ""
    returned_count: int = 0
    expected_count: int = 0
    sample: Sample | None = None
    error: float = 0.0  # |returned - true| / |true|
    wrong: int = 0  # elements that differ
    total: int = 0
    exception: str = ""  # "Type: message"
    detail: str = ""
    names: tuple[str, ...] = ()
    mend: Mend | None = None
    reference: str = ""  # how the true gradient was found: "autograd" or "finite differences"
    ok_cases: tuple[str, ...] = ()  # experiments in which the same thing was right
    given: bool = True  # the user's own inputs and arguments show it
    elsewhere: str = ""  # the shapes of the copy that the relation's numbers belong to, where those are not the inputs as given
    partly: bool = False  # right in some elements where the derivative is not zero, and zero wherever that is
    places: tuple[int, ...] = ()  # for each of `names`, the place that its gradient was returned in


@frozen
class Trial:
    """All that was found out about one Function."""

    function: str
    file: str = ""
    line: int = 0
    inputs: tuple[TensorFact, ...] = ()
    outputs: tuple[TensorFact, ...] = ()
    dtype: str = "float64"
    device: str = "cpu"
    directions: int = 0
    tolerance: float = 0.0
    evaluations: int = 0
    cases: tuple[tuple[str, str], ...] = ()  # experiments that came out right: name, shapes
    refused: tuple[tuple[str, str], ...] = ()  # experiments that forward itself refused: name, message
    double_backward: str = ""  # right | refused | wrong | fails | not-tried
    findings: tuple[Finding, ...] = ()
    accepted: tuple[Finding, ...] = ()  # findings that an option accepts
    remarks: tuple[str, ...] = ()  # limits of the experiments, in words
    twice: bool = False  # the program, or the Function's file, takes second derivatives

    def input_named(self, position: int) -> TensorFact:
        return self.inputs[position]

    def of_kind(self, *kinds: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind in kinds)


class FunctionRule(Rule):
    """A rule about a custom Function: a finished `Trial` in, diagnoses out."""

    # Advice that does not make a Function wrong leaves the outcome "ok".
    advice: typing.ClassVar[bool] = False
    # Where several rules speak, the higher one comes first.
    priority: typing.ClassVar[int] = 0

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        raise NotImplementedError
