"""`Observation`: what the audit's experiments saw, before it is judged. Frozen plain data, no torch, JSON round-trip.

One observation belongs to one audited step. Experiments fill in its lists; rules under
`rules/training/` read them and word the findings.
"""

from __future__ import annotations

from torchsleuth.auditor.observation_parts import Made, Magnitude, Polarity, Shape, Site
from torchsleuth.auditor.observation_training import (
    ConstantRatio,
    Contested,
    Cut,
    DiscardedGradient,
    EqualUnits,
    FrozenAtRandom,
    IdleSchedule,
    KeptGradient,
    MadeAnew,
    MixedGradient,
    ModeFact,
    NotFinite,
    NotFrozen,
    NothingLoaded,
    NoUpdate,
    OptimizerFact,
    OwnState,
    RestingGroup,
    Saturated,
    ScaledGradient,
    Unclipped,
    Undetached,
    Unkept,
    Unregistered,
    Unused,
    Vanish,
    Weight,
    WrongAverage,
)
from torchsleuth.frozen import frozen

VERSION = 1
WIDENED = "pad="  # how the setting of a convolution begins whose input was widened before it


@frozen
class Move:
    """A paired run: one thing was changed, and something moved that must not."""

    kind: str  # "padding", "padding-length", "padding-shorter", "padding-maximum", "padding-positions", "padding-choices", "padding-short", "padding-packed", "causal", "mixing", "order"
    changed: str  # what was changed, in words
    where: str  # what moved, in words
    distance: float
    rounding: float
    operation: str = ""  # the first operation whose result moved
    operation_shape: tuple[int, ...] = ()
    operation_input: tuple[int, ...] = ()  # of what a `view` has read off anew
    site: Site | None = None
    mask_site: Site | None = None  # where the mask was applied, if it was, just before
    mask_operation: str = ""
    unheard: bool = False  # samples are mixed on the way, and no output depends on them any more
    reordered: bool = False  # the samples were put in another order, and their results not back
    multiplied: bool = False  # scores were multiplied with the mask before a softmax
    filled: str = ""  # the number that they were filled with, if that hides nothing
    mask_shape: tuple[int, ...] = ()  # of the mask there, and of what it was to hide
    masked_shape: tuple[int, ...] = ()
    unmasked: str = ""  # the argument by which an attention could have been told what is padding, and was not
    padded_site: Site | None = None  # where the batch was padded, of a library that calls the model by itself
    pooled: bool = False  # the moved output has no axis for positions
    assumed: bool = False  # the padding was told from the ids alone: there was no mask and no declared pad id
    pad_id: int | None = None
    declares: int | None = None  # the pad id of the model's configuration, where another one stands at padded positions
    mask_name: str = ""
    real: str = ""  # what is True at real positions, in the model's own names
    mask_of_ids: bool = False  # the one that is applied is not that, but made of the ids
    sequence: str = ""  # the input that has the padding
    inverted: bool = False  # the experiment also showed that hidden words do not count
    turned: bool = False  # and the mask is one that is added: `made_site` made it zero at padding
    alone: str = ""  # what a row gives that is run alone and without its padding
    rank: int = 0  # above 0: still there when the places of lower rank are put right
    mask_unused: bool = False  # nothing in the model uses the mask
    hollow: str = ""  # what the mask that was applied holds, if that hides nothing
    aside: str = ""  # which positions it hides, and where the padding stands instead
    read: str = ""  # which padded position is read, in words
    read_at: Site | None = None  # where the number of that position was made
    of_other: str = ""  # the input whose padding these are
    handed: str = ""  # what it is called at the call that gives it to the part (`made_site`), if the right one is at hand, too
    repeated: int = 0  # how often it was repeated as a whole, where each of its rows should have been
    mask_axis: int = 0  # along which a mask that is right lies, and the axis that the softmax runs along instead
    operation_axis: int = 0
    samples_axis: int = 0  # of the scores, along which a mask's samples lie that should lie along the first
    instead: str = ""  # another mask that was used in its place
    not_given: str = ""  # the parameter for it of the part that it was not given to
    idle_mask: str = ""  # a mask among the inputs that is the same at all positions, or lengths that say so
    idle_width: int = 0  # what these lengths say, all of them
    carried: bool = False  # the operation takes a state on to the next step of a loop
    kept_site: Site | None = None  # the assignment that keeps that state
    crossed: bool = False  # the operation takes a state on to the next sample
    begun_site: Site | None = None  # the assignment before the loop over the samples, which gives that state its first value
    zero: bool = False  # what stands at padded positions there is zero
    intent: str = ""  # how it is known that the model is meant to be causal
    made_site: Site | None = None  # where the mask in use was made; where the part was called that was not given it (`not_given`, `mask_unused`); the softmax that runs along another axis; where samples were paired
    built_site: Site | None = None  # where the layer that did it was built
    setting: str = ""  # what was said there that made it do so
    shows: bool = False  # that mask lets some positions see later ones
    written: str = ""  # what to write instead of a `view` that mixes: an expression that was tried on what moved
    ahead: int = 0  # how many positions ahead that mask lets each one see; -1: all of them, and no earlier ones


@frozen
class LabelShift:
    """Which input token the loss compares the prediction at position t with: t + `offset`."""

    offset: int
    matched: int
    compared: int
    causal: bool
    site: Site
    input_name: str
    time_first: bool = False
    labels_sites: tuple[Site, ...] = ()  # where the labels were cut or copied
    inputs_site: Site | None = None  # where the tokens were cut, if one stands before them in what they were cut from
    predictions_site: Site | None = None  # where the first predictions were cut off
    labels_cut: bool = False  # there the labels were cut; not only copied
    shown_site: Site | None = None  # where a model that is asked for some chosen tokens is called, with these tokens to be seen


@frozen
class Broadcast:
    """Two operands that stretched one another: the result is larger than both. Or weights of samples on all pairs."""

    operation: str
    left: Shape
    right: Shape
    result: tuple[int, ...]
    site: Site
    explicit: int  # how many operands were given their size-1 axis on purpose just before
    reduced_into_loss: bool
    same_origin: bool
    batch: int | None = None
    kind: str = "outer"  # "metric": the same, in an evaluation; "weights": (B,) on the (B, B) that `product` made; "features": (B,) for each sample, along the last axis of (B, ..., B); "averaged": on a loss that is one number already, which is made (or called) at `product`; "reduced": what `reduction` made of the table at `product`, over `axes`
    product: Site | None = None
    made: tuple[Made, ...] = ()
    axes: tuple[int, ...] = ()
    reduction: str = ""


@frozen
class LossCall:
    """A loss function called in the step, with what was seen of its operands."""

    function: str
    site: Site
    value: float | None
    input: Shape
    target: Shape | None
    classes: int | None
    reduction: str
    activation: str = ""  # "softmax", "log_softmax", "sigmoid" when the input came straight from one
    activation_site: Site | None = None
    activation_built: Site | None = None  # where the module that applies it was built
    built_inside: bool = False  # as one of several layers: there it is to be taken out
    gradient_left: float | None = None  # the share of the scores' gradient that comes through the activation
    asked: float | None = None  # of probabilities that sum to one: how many of them the targets want to be one, along the same axis (`asked_over`)
    asked_over: int | None = None
    cut_off: tuple[int, int, int, int] | None = None  # scores that are zero, of how many; labels' own scores that are, of how many
    out_of_reach: tuple[int, int, float, float] | None = None  # targets that the activation cannot give, of how many; the least and the greatest
    logarithm: Site | None = None  # what is no distribution was made by a logarithm here
    rows_sum_to_one: bool = False
    similarities: bool = False  # its scores compare two computed things with one another, or are cosines (or the like) times a scale
    normalised: bool = False  # its rows are log-probabilities: their exponentials sum to one
    lowest: float = 0.0
    highest: float = 0.0
    spread: float = 0.0
    weighted: bool = False
    bad_labels: tuple[int, ...] = ()  # labels outside [0, classes) that are not ignored
    ignore_index: int | None = None
    ignored: int = 0
    counted: int = 0
    padded_counted: int = 0  # labels at padded positions that do count
    pad_label: int | None = None
    pad_label_real: int = 0  # labels at real positions that are the same
    labels_made: Site | None = None  # where the labels were given the values they have at padded positions
    built: Site | None = None  # where the loss was made, of one that counts labels at padded positions
    layer: Site | None = None  # the layer that made the input, where it did not lay its outputs along axis 1
    sums_along: int | None = None  # the axis along which the input is log-probabilities, where that is not the one of the classes
    sums_in: tuple[int, ...] = ()  # where that was before the positions were laid one after the other
    asked_along: int | None = None  # of a divergence: the axis along which the other side does
    log_target: bool = False  # of `kl_div`: its target is to be logarithms, too
    target_lowest: float = 0.0
    target_activation: str = ""
    target_site: Site | None = None
    magnitudes: tuple[Magnitude, ...] = ()  # of a first loss far above chance: what makes the scores large
    scores: Site | None = None  # the layer that made the input, where nothing but its arrangement has changed since


@frozen
class AxisFact:
    """A softmax or the like over an axis it should not run over."""

    kind: str  # "one-element"; of weights of an attention: "query-axis", "other-axis"; "unit-axis": vectors of length 1 along `along`, compared along `keys`;
    # "samples-overlap", "samples-distance": sums over the samples, of which a quotient or a margin is taken at `use`
    operation: str
    dim: int
    size: tuple[int, ...]
    site: Site
    use: Site | None = None
    along: int = -2  # the axis along which the weights sum to one
    keys: int = -1  # the axis along which they should
    built: Site | None = None  # where the layer that does so was given its axis
    others: tuple[Site, ...] = ()  # further sums that meet at `use`


@frozen
class Duplicates:
    operation: str
    site: Site
    indices: int
    distinct: int
    example: int | tuple[int, ...]  # a place; of two axes, where the index names both
    times: int
    accumulating: bool  # x[i] += v or the like
    target: tuple[int, ...] = ()


@frozen
class Alias:
    """The same tensor several times in a result, written in place in between; or returned in two places."""

    count: int
    site: Site
    writes: Site | None
    writer: str
    returned: tuple[str, ...] = ()  # the places of the model's result
    size: tuple[int, ...] = ()


@frozen
class Swap:
    """A `view` to the same sizes in another order, one that moves an axis (`moved`) past a part of its neighbour, or one that cuts pictures into so many parts."""

    operation: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    site: Site
    moved: int = 0
    part_before: tuple[int, ...] = ()  # the sizes that change, where not all are the same in another order
    part_after: tuple[int, ...] = ()
    torn: bool = False  # pictures, cut into parts that cross the border between two channels
    written: str = ""  # the exchange of axes that was meant
    labels: Site | None = None  # where labels are flattened whose axes stand in another order than those of the predictions they are compared with


@frozen
class SharedLayer:
    container: str
    container_type: str
    positions: tuple[int | str, ...]  # the names, in a dict
    layer_type: str
    weights: int
    site: Site | None
    copied: bool = False  # several objects, which share what they hold: shallow copies
    default: str = ""  # it is the default value of this argument of `container_type`; `positions` are the paths of those who hold it


@frozen
class HotLine:
    nodes: int
    total: int
    repeats: int
    site: Site
    loop: Site | None
    elements: int
    kind: str  # "nodes", "item"
    more: tuple[Site, ...] = ()  # other reads, or lines that made many nodes, in the same loop
    around: tuple[Site, ...] = ()  # loops around it that run over the same elements
    together: int = 0  # nodes of all its lines
    rounds: int = 0  # of the loop, of which its branches share the lines


@frozen
class InputFact:
    """Something about the batch that is wrong or looks wrong before any forward pass."""

    kind: str
    name: str
    text: str  # the observation in one sentence, with its numbers
    value: int | float | None = None
    position: tuple[int, ...] = ()
    limit: int | None = None
    table: str = ""
    site: Site | None = None
    count: int = 0
    made: Site | None = None  # where the program made this input
    polarity: Polarity | None = None  # of a mask that hides the words
    lowest: int | None = None  # of labels that are out of range


@frozen
class Overfit:
    steps: int
    first: float
    last: float


@frozen
class Observation:
    model: str
    call: Site | None = None  # the program's call of the model, or of `audit`
    version: int = VERSION
    training: bool = False
    moves: tuple[Move, ...] = ()
    shifts: tuple[LabelShift, ...] = ()
    weights: tuple[Weight, ...] = ()
    cuts: tuple[Cut, ...] = ()
    undetached: tuple[Undetached, ...] = ()
    unused: tuple[Unused, ...] = ()
    unkept: tuple[Unkept, ...] = ()
    vanished: tuple[Vanish, ...] = ()
    saturated: tuple[Saturated, ...] = ()
    ratios: tuple[ConstantRatio, ...] = ()
    averages: tuple[WrongAverage, ...] = ()
    contested: Contested | None = None
    equal_units: tuple[EqualUnits, ...] = ()
    not_finite: NotFinite | None = None
    finite: bool | None = None  # the loss and all gradients are (without a loss: no output holds NaN); None where that is not known
    optimizer: tuple[OptimizerFact, ...] = ()
    unregistered: tuple[Unregistered, ...] = ()
    no_update: NoUpdate | None = None
    kept: tuple[KeptGradient, ...] = ()
    discarded: tuple[DiscardedGradient, ...] = ()
    mixed: tuple[MixedGradient, ...] = ()
    scaled: ScaledGradient | None = None
    unclipped: Unclipped | None = None
    not_frozen: NotFrozen | None = None
    resting: tuple[RestingGroup, ...] = ()
    frozen_at_random: tuple[FrozenAtRandom, ...] = ()
    idle_schedule: IdleSchedule | None = None
    made_anew: MadeAnew | None = None
    states: tuple[OwnState, ...] = ()
    not_loaded: tuple[NothingLoaded, ...] = ()
    broadcasts: tuple[Broadcast, ...] = ()
    losses: tuple[LossCall, ...] = ()
    axes: tuple[AxisFact, ...] = ()
    duplicates: tuple[Duplicates, ...] = ()
    aliases: tuple[Alias, ...] = ()
    swaps: tuple[Swap, ...] = ()
    shared: tuple[SharedLayer, ...] = ()
    modes: tuple[ModeFact, ...] = ()
    hot: tuple[HotLine, ...] = ()
    inputs: tuple[InputFact, ...] = ()
    overfit: Overfit | None = None
    crash: str = ""  # the forward pass raised this; the experiments that need it were not made
    notes: tuple[str, ...] = ()
