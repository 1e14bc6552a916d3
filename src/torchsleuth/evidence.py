"""What is known about a crash: frozen plain data, the only input of crash rules, JSON round trip via `model`.

Each section is filled by the investigation of the same name in `capture/`, and only when a nominated rule
needs it. Places and facts carry how they are known. Nothing here refers to a live object.
"""

from __future__ import annotations

from torchsleuth.evidence_device import DeviceDeath, DeviceState, FullMemory
from torchsleuth.evidence_forward import FailedOperation, RefusedState
from torchsleuth.evidence_parts import Place, TensorFact
from torchsleuth.frozen import frozen
from torchsleuth.model import RaisedException

EVIDENCE_VERSION = 1


@frozen
class Frame:
    """One entry of the traceback, outermost first."""

    place: Place
    origin: str  # "user", "library", "torch", "stdlib", "torchsleuth"


@frozen
class WriteSite:
    """One source expression that wrote into the tensor, as often as it did."""

    operation: str
    place: Place
    times: int
    first_version: int | None  # the tensor's version just before the first of these writes
    last_version: int | None  # and just after the last
    grad_enabled: bool | None
    target: str = ""  # what the expression wrote through, where that differs from the saved tensor
    overlaps: bool | None = None  # whether the written region touches the saved one
    whole: bool | None = None  # whether it wrote through the saved tensor itself; False: through a view of another region or shape
    fits_exactly: bool = False  # `x[i] = value`, seen each time with a value of the region's own shape, dtype and device
    module: str = ""  # torch's own module that wrote, by its path: "net.features.5"
    module_class: str = ""
    made: Place | None = None  # where that module was made with `inplace=True`
    steps: int = 0  # of the version in all of this, where they were counted
    assigned: bool = False  # `x[i] *= 2`: the view that was written into was then assigned to its place, which wrote again


@frozen
class Holder:
    """Where the function that called backward can reach a state of some object."""

    path: str  # `model.memory.state`, to which it could assign
    kind: str  # what lies there: "tensor", or a "list", "tuple" or "dict" of tensors


@frozen
class CarriedTensor:
    """A tensor made before the graph was freed and used again after it."""

    tensor: TensorFact
    made: Place | None
    made_by: str
    used: Place | None
    used_by: str
    # The line of the maker's own function during which the oldest freed part of its history was made; None where that was
    # before the function was called, or is not known.
    since: int | None = None
    # Where one expression carries several and it is not known which of them this is: the names of all, `h` and `c`.
    together: tuple[str, ...] = ()
    kept: Place | None = None  # the assignment that keeps it for the next round: `self.state = h, c`
    during: Place | None = None  # the statement of backward's own function, run once, during which another function made it
    within: bool = False  # the name is that of a list or tuple that it is an element of
    holders: tuple[Holder, ...] = ()  # where backward's own function reaches what the same expression has made since
    repeated: bool = False  # that expression has run more than once since: the step has several rounds of its own
    stored: Place | None = None  # what was put into a list or queue that has it still: `z` of `self.data.append((z, reward))`
    is_data: bool = False  # and there is something to train without all that lies there, so that it can be detached where it is put

    @property
    def names(self) -> tuple[str, ...]:
        return (self.tensor.name,) if self.tensor.name else self.together


@frozen
class StaleSave:
    """An autograd node whose saved tensor was overwritten since."""

    node: str  # PowBackward0
    operation: str  # pow
    saved: str  # which one: "self", "other", "result", …
    place: Place | None
    tensor: TensorFact
    version_saved: int
    version_now: int
    failing: bool  # the error message is about this one
    writes: tuple[WriteSite, ...] = ()
    complete: bool = False  # the writes account for every step from version_saved to version_now
    candidates: tuple[WriteSite, ...] = ()  # where no write could be singled out: what may have written
    storage: int = 0  # equal for saves of the same memory; a number without other meaning
    untrained: bool = False  # a parameter; and nothing that the gradient goes on to from there is held by an optimizer in sight
    named_in: str = ""  # the function in which it has its name, where that is not the one that saved it
    several: bool = False  # the operation has more than one result
    born: Place | None = None  # the expression that allocated its memory, where the log has seen it
    # Of the failing one, where an optimizer's step wrote: what was made before that step and used after it.
    carried: tuple[CarriedTensor, ...] = ()
    kept: Place | None = None  # of a custom Function: the `ctx.save_for_backward(...)` that kept it

    @property
    def is_result(self) -> bool:
        return self.saved in ("result", "output", "out")


@frozen
class InplaceTarget:
    """The tensor that an in-place operation was refused on."""

    tensor: TensorFact
    operation: str
    place: Place  # the refused write
    made: Place | None  # where the leaf, or the view, was made
    made_by: str = ""  # "unbind", "select", …
    base: TensorFact | None = None
    same_as: tuple[str, str] | None = None  # two expressions of the refused statement that are this one tensor: the one written to first


@frozen
class FreedGraph:
    """A second backward through a graph whose buffers are gone."""

    second: Place  # the backward that failed
    first: Place | None  # the backward that consumed the graph
    consumptions: int  # how many backward calls were seen before the failing one
    carried: tuple[CarriedTensor, ...]
    same_root: bool  # backward was called before on the same tensor
    root: TensorFact | None
    failing: Place | None = None  # the forward expression of a freed node
    failing_operation: str = ""
    # What took the carried tensor into the first backward, where that had no use for it: it was for other weights, and the
    # gradients that it gave to those behind the tensor (`behind`, which an optimizer holds) were thrown away.
    needless: Place | None = None
    behind: tuple[str, ...] = ()
    alone: bool = False  # all that this backward leads to lies behind what is carried over: without that there is nothing to train
    freed_by_another: bool = False  # with `same_root`: what freed the graph was a backward of another tensor, a second derivative


@frozen
class GradientCut:
    """An operation whose inputs required grad and whose result does not."""

    operation: str  # "argmax", "detach", "item", "tensor", "no_grad", …
    reason: str  # why it cuts: see `capture/lost.py`
    place: Place
    tensor: TensorFact | None  # what still had a gradient going in
    wrapper: Place | None = None  # the `with torch.no_grad():` or decorator, where that is the reason
    switch: Place | None = None  # or the `set_grad_enabled(False)` that ran before and stayed in force
    handed: str = ""  # what then took the values out of torch: "__array__", "item", …
    is_new: bool = False  # its line ran in the failing round for the first time, and the rounds before went well


@frozen
class NumberRoot:
    """`loss.backward()` on a plain number."""

    name: str  # the expression before `.backward`
    type: str  # "float", "int", "ndarray"
    value: str  # "" where it is not one number
    call: Place
    cuts: tuple[GradientCut, ...]  # what took the number out of a tensor with history


@frozen
class AbsentGradient:
    """`x.grad` is None, and something was asked of it."""

    tensor: TensorFact
    owner: str  # the expression before `.grad`; "" where it has none of its own
    asked: Place  # the expression that is None: `x.grad`, or the call of `autograd.grad` that returned it
    use: Place  # what failed
    reason: str  # "constant", "computed", "cleared", "before", "elsewhere", "unused", "late", "cut", "aside", "returned", "unreached"
    made: Place | None = None  # where the tensor was made, and
    made_by: str = ""
    frozen_at: tuple[Place, ...] = ()
    leaves: tuple[str, ...] = ()  # of "computed": the leaves with names that it was computed from
    backward: Place | None = None  # the last backward
    other: Place | None = None  # "cleared": what cleared it; "elsewhere": the `autograd.grad`; "late": what asked for the gradient; "aside": its use
    cuts: tuple[GradientCut, ...] = ()
    layer: Place | None = None  # of a parameter: where its layer was made
    alike: tuple[str, ...] = ()  # other parameters of the same model without a gradient


@frozen
class RefusedResult:
    """A result of recorded operations, where torch takes leaves only."""

    tensor: TensorFact
    use: Place
    wanted: str  # "optimize", "copy", "flag"
    made: Place | None
    leaves: tuple[str, ...] = ()  # the leaves with names that it was computed from
    asked: bool = False  # of "flag": a gradient was asked for, not done without


@frozen
class AssignedGradient:
    """`p.grad = value`, which torch refused."""

    tensor: TensorFact
    owner: str
    value: TensorFact | None
    source: str  # the expression of the value
    use: Place
    made: Place | None = None  # where the value was computed, if that is another place


@frozen
class SecondDerivative:
    """A second derivative through a custom Function that is marked with `@once_differentiable`."""

    function: str
    mark: Place | None  # the decorator
    forward_call: Place | None
    first: Place | None  # the `autograd.grad(..., create_graph=True)` before
    second: Place  # the backward that failed


@frozen
class LostGradient:
    """`backward()` on a tensor without history."""

    root: TensorFact
    call: Place
    made: Place | None  # the expression that made the root
    cuts: tuple[GradientCut, ...]
    frozen: tuple[str, ...]  # parameters of the model in use that do not require grad
    trainable: int  # how many parameters in sight do
    grad_enabled: bool  # at the time of the crash
    bare: bool = False  # it was made from Python or numpy values whose origin was not seen
    frozen_at: tuple[Place, ...] = ()  # the expressions that froze the parameters
    frozen_used: tuple[str, ...] = ()  # frozen parameters that the root was computed from while recording was on
    frozen_by: tuple[Place, ...] = ()  # the calls that had a function freeze what they gave it
    recorded: bool = False  # recording was on when the root itself was computed: what it was computed from had lost its history


@frozen
class BackwardRoot:
    """What backward was called on."""

    root: TensorFact
    call: Place
    made: Place | None
    made_by: str
    gradient: TensorFact | None = None
    mapped: bool = False  # it ran under `vmap`: shapes are without the mapped dimension
    unreduced: Place | None = None  # the loss that was computed with `reduction="none"`, where the root has its number of elements


@frozen
class GradInput:
    """The tensor with respect to which `autograd.grad` could not differentiate."""

    call: Place
    tensor: TensorFact
    position: int
    made: Place | None
    root: TensorFact | None  # what was to be differentiated
    root_made: Place | None
    root_has_history: bool
    root_leaves: tuple[str, ...]  # the named leaves that the root was computed from
    made_of: str = ""  # the tensor that this one is a view of, where the root was computed from that
    cut: GradientCut | None = None  # what took the history from values that were computed from it, and that the root was computed from


@frozen
class Recomputation:
    """A checkpointed function that did something else when backward ran it again."""

    call: Place  # the backward
    function: str  # as the program calls it
    definition: Place | None  # its first line
    checkpoint: Place | None  # the `checkpoint(...)` call, where the program has one
    changes: tuple[tuple[str, Place], ...]  # attributes that the function both reads and changes, and where it changes them
    draws: tuple[Place, ...]  # calls in it to random numbers that are not torch's, which a checkpoint does not restore


@frozen
class NanNode:
    """The node at which anomaly mode found NaN, and the operation after it in the forward pass that may have caused it."""

    call: Place  # the backward
    node: str
    operation: str
    place: Place | None  # the forward expression of the node; None where it could not be singled out
    candidates: int  # how many nodes of that kind there are
    edge: str = ""  # the operation with an infinite slope that the gradient came through: sqrt, log, div …
    edge_place: Place | None = None


@frozen
class ReturnedGradient:
    """One element of what a custom `backward` returns."""

    position: int  # counts the arguments of forward, from 0
    parameter: str  # the name of forward's argument
    source: str  # the returned expression
    place: Place | None
    made: Place | None = None  # where the returned variable is computed, if that is one place


@frozen
class CustomBackward:
    """The custom autograd Function in whose backward things went wrong."""

    function: str  # class name
    forward_call: Place | None  # the `apply` in the program that made the node
    definition: Place | None  # the def line of its backward
    returns: tuple[ReturnedGradient, ...]
    return_place: Place | None
    inputs: tuple[TensorFact | None, ...]  # forward's inputs, None where not a tensor, as far as known
    parameters: tuple[str, ...]  # names of forward's arguments without ctx
    raised_inside: bool  # the exception was raised by code in backward
    raised_at: Place | None = None
    is_hook: bool = False
    needs_grad: tuple[bool, ...] = ()
    module: str = ""  # of a module's backward hook: the module it ran for, with its class
    missing_inputs: tuple[int, ...] = ()  # and which of the gradients of its inputs are None
    tensors_saved: int | None = None  # how many forward gave to `save_for_backward`, None where that cannot be read
    set_on_context: tuple[str, ...] = ()  # the attributes that forward set on ctx
    given: int | None = None  # how many gradients it was called with, where that is not how many it takes
    takes: tuple[str, ...] = ()  # the names of those that it takes
    hooked: TensorFact | None = None  # of a tensor's hook: the tensor
    registered: Place | None = None  # and where it was hung on it
    returned_shape: tuple[int, ...] | None = None  # what the hook returns for a gradient in that shape, computed again


@frozen
class Evidence:
    """All that the rules may know."""

    exception: RaisedException
    frames: tuple[Frame, ...]
    stale: tuple[StaleSave, ...] = ()
    inplace_target: InplaceTarget | None = None
    freed: FreedGraph | None = None
    lost: LostGradient | None = None
    number_root: NumberRoot | None = None
    absent_gradient: AbsentGradient | None = None
    refused_result: RefusedResult | None = None
    assigned_gradient: AssignedGradient | None = None
    second_derivative: SecondDerivative | None = None
    backward_root: BackwardRoot | None = None
    grad_input: GradInput | None = None
    nan_node: NanNode | None = None
    recomputation: Recomputation | None = None
    custom: CustomBackward | None = None
    inference: tuple[GradientCut, ...] = ()
    operation: FailedOperation | None = None  # the forward call that raised
    refused_state: RefusedState | None = None  # a checkpoint that does not fit
    device: DeviceDeath | None = None  # the GPU stopped
    device_state: DeviceState | None = None  # what it says when asked after the error
    memory: FullMemory | None = None  # its memory ran out
    recording: str = ""  # "observed" (log), "lines" (ring only), "none"
    notes: tuple[str, ...] = ()
    version: int = EVIDENCE_VERSION

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own."""
        return next((frame for frame in reversed(self.frames) if frame.origin == "user"), None)
