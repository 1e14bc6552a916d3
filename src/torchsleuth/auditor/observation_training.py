"""What an audit saw of gradients, parameters, optimizers and modes: how a step trains, or fails to."""

from __future__ import annotations

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.frozen import frozen


@frozen
class Weight:
    """A parameter of the model, or one that only the optimizer holds."""

    name: str
    size: tuple[int, ...]
    requires_grad: bool
    grad: str  # "none", "zero", "nan", "inf", "ok", "unknown"
    in_optimizer: bool | None  # None: no optimizer was seen
    in_model: bool = True
    module_called: bool = True
    module_type: str = ""
    module_is_user: bool = True


@frozen
class Cut:
    """An operation that took something that needs a gradient and gave back something without history."""

    operation: str
    reason: str  # "argmax", "item", "tensor", "data", "numpy", "no-grad", "integer", "detach", "compare", "python", "parameter"; "drawn": its gradient is zero; "numbers": nothing of the model is in it
    site: Site
    weights: tuple[str, ...]
    whole_loss: bool = False  # nothing at all reaches the loss
    forced: Site | None = None  # `requires_grad_()` called on the result
    times: int = 1
    scope: Site | None = None  # the `with torch.no_grad()` it stood in
    sure: bool = True  # False: values were handed out here, and were not seen to come back
    used: Site | None = None  # where a later step, which does not compute it anew, takes it up
    shared: bool = False  # `used` is the line that called the function it stands in, which other lines call, too
    term: Site | None = None  # a term of the loss, which is a constant because of this
    number: float | None = None  # what `term` adds to the loss, if that is a plain number
    partly: bool = False  # they get a gradient from elsewhere; what goes through here gives them none
    remade: Site | None = None  # where the values that were handed out are made into a tensor again


@frozen
class Unused:
    """Parameters that got no gradient although nothing was cut: never used, or their result was dropped."""

    weights: tuple[str, ...]
    how: str  # "never-called", "dropped"; "overwritten": a loss, whose name was given to something else before it was used;
    # "part": `backward()` (`site`) was called on one term of the loss (`end`), "left-out": on another loss
    module: str
    module_type: str
    site: Site | None = None
    built: Site | None = None  # where the layer is made
    end: Site | None = None  # the last thing computed from its result, which nothing takes up; or what overwrites it
    again: Site | None = None  # the second call of another layer of its size with the very same input, the first of which is `first`
    first: Site | None = None
    other: str = ""  # a layer beside it, of its kind, that is called at two places, `twice`, with different inputs
    twice: tuple[Site, ...] = ()


@frozen
class Vanish:
    """Where a gradient that was there became exactly zero, or NaN."""

    kind: str  # "zero", "nan"
    weights: tuple[str, ...]
    operation: str
    site: Site | None
    detail: str = ""
    zero: bool = False  # of a product: the other factor is zero
    factor: Site | None = None  # where that factor was made
    setting: bool = False  # it is a number that somebody has set, as far as can be seen: the term is switched off
    by_function: bool = False  # `operation` is a Function of the program's, and this is what its `backward` returns
    dropped: str = ""  # the `p` of a dropout that leaves nothing, as the program gave it: "1.0", "True"
    zeros: tuple[str, ...] = ()  # weights of that operation that are zero in every element, and get a gradient of zero themselves
    filled: tuple[Site, ...] = ()  # where those, and others before them, were filled with zeros; or a bias before it, with one negative number; or where the layer was built, if `of_one`
    steps: int = 0  # a layer began at zero; all these have the same values after so many steps (-1: not known yet)

    @property
    def of_nothing(self) -> bool:
        """The operation was given a selection without elements."""
        return self.kind == "zero" and self.detail.startswith("[0]")

    @property
    def of_one(self) -> bool:
        """A normalisation over one element: what is left of its gradient is rounding."""
        return self.operation in ("layer_norm", "rms_norm") and self.detail.endswith(", 1]")


@frozen
class EqualUnits:
    """All rows of a layer's weight are the same, and all rows of its gradient."""

    weight: str
    layer: str
    units: int
    norm: float  # of the gradient
    site: Site | None  # where its values were written


@frozen
class NotFinite:
    """The first result that holds NaN or infinity, on the way to a loss that is not finite."""

    kind: str  # "nan", "inf"; "given": NaN that came with an operand; "later": the gradients of a later step, where `operation` is "NaN" or "infinite" and `site` the optimizer's step
    operation: str
    site: Site
    why: str  # what about its inputs explains it; of a later step, the variable around it that holds NaN ("" for none)
    loss: str  # "NaN", "infinite"
    step: int = 1
    made: Site | None = None  # where that variable got its value


@frozen
class OptimizerFact:
    kind: str  # "missing", "stale"; "foreign": none of what it holds is trained by the loss; "thawed": frozen at the first step
    optimizer: str
    weights: tuple[str, ...]
    count: int
    site: Site | None = None
    rebound: Site | None = None
    step: int = 1  # the optimizer step at which it was seen
    by_syntax: bool = False  # `rebound` was read in the source
    total: int = 0  # trainable parameters of all models in the step
    apart: bool = False  # none of what the optimizer holds is the model's
    copied: Site | None = None  # these were copied here from tensors that the optimizer holds
    copied_later: bool = False  # between two steps: `weights` are the names of what they were copied from
    duplicate: Site | None = None  # the other way round: what the optimizer holds was copied here from these
    added: tuple[Site, ...] = ()  # where they were put into the model, after the optimizer was built


@frozen
class Unregistered:
    """Parameters that the model uses and does not own: `parameters()` does not list them."""

    sizes: tuple[tuple[int, ...], ...]
    site: Site
    holder: str  # the attribute that holds their modules, if it was found
    built: Site | None = None
    kind: str = ""  # what it is, where it is an object of another class and not a list, tuple or dict; "tensor": a tensor itself
    made: Site | None = None  # where the forward pass itself makes them


@frozen
class NoUpdate:
    """The first optimizer step changed nothing."""

    optimizer: str
    reason: str  # "learning-rate", "cleared", "zeroed", "no-gradient", "zero-gradient", "no-backward", "rebound", "never-stepped", "barren"; "at-rest": no step was taken yet; "vanished": its rate, in later steps
    site: Site | None = None
    cleared: Site | None = None
    scheduled: bool = False
    steps: int = 0  # above 0: so many steps were watched, and none changed anything
    held: int = 0  # parameters of the optimizer
    since: int = 0  # the step from which on the rate was next to nothing
    advanced: int = 0  # how often the schedule had been advanced by then
    beside: bool = False  # another optimizer trains the rest
    built: Site | None = None  # where its learning rate comes from: the schedule is made there, or else the optimizer
    named: Site | None = None  # the method that should have been called is written there, and not called
    unreached: Site | None = None  # "never-stepped": its step is written there
    condition: Site | None = None  # what that stands under
    zeros: tuple[tuple[str, Site], ...] = ()  # parameters of one module that are zero in every element, with where they are made
    unloaded: bool = False  # "average": the new tensors are put into a state dictionary, which nothing loads
    decayed: bool = False  # weight decay has moved the parameters all the same
    writers: tuple[Site, ...] = ()  # what wrote into the gradients between `backward()` and the step; a step that was taken in the place of this one; "vanished": what advances the schedule
    backward: Site | None = None  # "never-stepped": it gave the gradients that nobody used
    twice: bool = False  # that one had taken a step with the same gradients just before
    rate: Site | None = None  # where the program sets the learning rate of 0 by hand, as the source has it
    closure: Site | None = None  # "no-backward": what the closure of the step returns


@frozen
class ModeFact:
    kind: str  # "eval-in-training", "dropout-in-eval", "train-in-evaluation"; "eval-undone": of a part (`operation`), by `site`
    modules: tuple[str, ...]
    site: Site | None
    distance: float = 0.0
    operation: str = ""
    changed: Site | None = None  # the `eval()` that was the last thing done to the model's mode
    step: int = 1  # the first optimizer step in this mode
    steps: int = 1  # how many steps were taken in it
    metric: Site | None = None  # where the evaluation's result is compared with something
    output: str = ""
    stranger: bool = False  # it was a layer that is no part of the model
    built: Site | None = None  # where the plain container is made that it is kept in
    updated: bool = False  # BatchNorm took the evaluation's data into its running values
    named: Site | None = None  # `model.eval` (or `model.train`) is written there, and not called
    numbers: bool = False  # what leaves beside as many targets are predicted numbers, not classes
    around: Site | None = None  # the evaluation, where the call is in a function that it shares with the training
    beside: bool = False  # another model is trained in train mode by the same step
    held: Site | None = None  # then, where the optimizer was built that holds this one, too


@frozen
class KeptGradient:
    """A step used a gradient that still held that of the step before."""

    optimizer: str
    weight: str
    times: int
    chances: int  # steps after the first that were watched
    norm: float  # of the gradient that was there before the second backward pass
    site: Site | None
    backward: Site | None = None
    closure: bool = False  # the backward passes are those of a closure, which the step calls
    named: Site | None = None  # `optimizer.zero_grad` is written there, and not called
    within: bool = False  # they are cleared between steps, and not between the calls of the closure in one step


@frozen
class DiscardedGradient:
    """Before each step several backward passes came, and the gradients of all but the last were cleared unused."""

    optimizer: str
    weight: str
    count: int  # backward passes before each step
    steps: int  # so many steps were watched
    cleared: Site | None
    backward: Site | None


@frozen
class MixedGradient:
    """A step used the gradients of its own loss together with those that the loss of another optimizer's step had left there."""

    optimizer: str
    other: str  # the optimizer whose step came in between
    weight: str
    cosine: float  # of the two gradients
    early: Site | None  # the backward pass of the other one's loss
    late: Site | None
    entry: Site | None = None  # where the part that the other one trains was given what still had its history


@frozen
class ScaledGradient:
    """The gradients of a loss that a scaler has multiplied were used, or limited, before they were divided again."""

    kind: str  # "step", "limit"; "unscaled": the other way round, the scaler divides gradients of a loss that it has not multiplied
    optimizer: str
    scale: float
    site: Site | None
    scaled: Site | None  # the backward pass of the scaled loss; of the other one, if "unscaled"
    dropped: Site | None = None  # where that one was multiplied after all, and the product not used


@frozen
class Unclipped:
    """A step used gradients as `backward()` left them, although the program calls `clip_grad_norm_`."""

    kind: str  # "early": it was called before they were there; "spent": its iterator had come to its end; "late": the step had used them already
    optimizer: str
    site: Site
    backward: Site | None
    limit: float
    norm: float  # of the gradients that the step used
    made: Site | None = None  # where the iterator was made
    weight: str = ""  # "late": whose gradient was `norm` long when the step used it, and `limit` when it was cleared (`backward`)
    times: int = 1


@frozen
class Undetached:
    """What a loss takes as given is computed with a history, and the gradient that goes through it trains something."""

    kind: str  # "target": a reward and the network's own next value; "score": what the log-probability of a sample is multiplied with
    site: Site
    made: Site | None  # "target": where the next value is computed
    weights: tuple[str, ...]  # that get a gradient through it


@frozen
class ConstantRatio:
    """The exponential of a difference between two numbers that are computed alike, anew in each step."""

    site: Site
    made: Site  # the number without history
    limit: Site | None
    count: int


@frozen
class WrongAverage:
    """A mean of weights over time, of which the terms or the target are not what they should be."""

    kind: str  # "itself": both terms lie in one memory; "reversed": written into the trained model, the copy stays; "trained": the copy gets gradients, too
    site: Site
    made: Site | None  # "itself": where the memory got its second name; "trained": where the copy is used with gradients
    share: float  # that the mean keeps of what was there
    count: int  # parameters


@frozen
class Contested:
    """Two optimizers hold the same parameters and pull them in opposite directions."""

    optimizer: str
    site: Site  # where the one that holds more was built
    other: Site | None
    weights: tuple[str, ...]
    turns: int
    cosine: float  # at most, of the gradients of two steps that followed one another


@frozen
class Saturated:
    """An activation is nearly flat for what it is given, in the first step and at the end."""

    operation: str
    site: Site
    weights: tuple[str, ...]  # that reach the model's results by no other way
    lowest: float
    highest: float
    count: int
    beyond: int  # so many of these lie where it is nearly flat
    cause: Site | None = None
    reason: str = ""  # in words, with its numbers


@frozen
class RestingGroup:
    """One group of an optimizer's parameters had a learning rate of 0 in all steps; the others did not."""

    optimizer: str
    group: int
    groups: int
    weights: tuple[str, ...]
    steps: int
    built: Site | None
    rate: Site | None = None  # where its rate is written, as the source has it
    number: Site | None = None  # the 0 that is given to the name that stands there
    scheduled: Site | None = None  # a schedule has set the rate


@frozen
class FrozenAtRandom:
    """A layer was put in the place of another one, and frozen with the random numbers that it began with."""

    layer: str
    weights: tuple[str, ...]
    site: Site  # where it was put there
    frozen: Site


@frozen
class NotFrozen:
    """An attribute was set to False that freezes nothing, and what it was to freeze is trained."""

    attribute: str
    kind: str  # what it was set on: "module", "parameter"; "compared": it was set on nothing
    weights: tuple[str, ...]
    site: Site  # as the source has it


@frozen
class IdleSchedule:
    """A schedule that was never advanced, or whose optimizer takes no steps."""

    kind: str  # "elsewhere": it holds another optimizer; "named": its `step` is named and not called; "unread": nothing reads its name
    optimizer: str  # "elsewhere": the kind of the one that takes the steps
    site: Site  # where the schedule is made
    steps: int
    advanced: int = 0
    built: Site | None = None  # where the one that takes the steps is built
    named: Site | None = None


@frozen
class MadeAnew:
    """An optimizer was built for each of so many steps."""

    optimizer: str
    site: Site
    count: int
    kept: str  # what it gathers, as its state calls it


@frozen
class Unkept:
    """A statement that is nothing but a call which returns a new tensor."""

    operation: str
    site: Site
    times: int
    in_place: bool  # there is a method that writes into the tensor, with an underscore at its end


@frozen
class OwnState:
    """`load_state_dict` was given the very tensors that the model holds: nothing changes."""

    site: Site
    steps: int  # optimizer steps that had been taken by then
    taken: Site | None = None  # where the program took the state, or gave one model a second name
    alias: str = ""  # the state is that of a module under another name, which is this one


@frozen
class NothingLoaded:
    """`load_state_dict(..., strict=False)` found nothing in the state that the model has."""

    site: Site
    model: str
    wanted: tuple[str, ...]  # names of the model's tensors
    given: tuple[str, ...]  # names in the state
    prefix: str = ""  # the state's names are the model's with this before them
    lacking: str = ""  # the model's names are the state's with this before them
    entry: str = ""  # the state that fits lies in this entry of what was given
