"""Messages of loss functions: targets out of range, in the wrong shape or of the wrong dtype."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Found, Reading, call, dtype, raising, reads, running, shape


@reads(
    r"Target (?P<target>-?\d+) is out of bounds",
    example="IndexError: Target 3 is out of bounds.",
    fragments=(r"target .{0,12}is out of bounds", r"target out of bounds", r"assertion `?cur_target >= 0 && cur_target < n_classes'? failed"),
)
def target_out_of_bounds(found: Found) -> Reading:
    target = found.int("target")
    classes = max(target, 3)
    causes = [
        f"Labels count from 1: with {target} classes the labels 1 to {target} should be 0 to {target - 1}." if target > 0 else
        f"{target} was meant as \"ignore\": only `ignore_index` is ignored, and its default is -100.",
        "The last layer has fewer outputs than there are classes (`nn.Linear(..., num_classes)`), or labels of another data set.",
        "The class axis is in the wrong place: `cross_entropy` reads dimension 1 as classes, also in [batch, time, classes] scores.",
        "Pixel values of a mask image (0, 128, 255; 255 often means \"ignore\") were used as classes.",
    ]  # fmt: skip
    return Reading(
        f"the class {target} does not exist",
        f"`cross_entropy` and `nll_loss` take class numbers 0 to C-1, where C is the size of dimension 1 of the scores. A target holds {target}"
        + (f", so there are at most {target} classes." if target > 0 else ", and no class is negative."),
        tuple(causes),
        raising(
            f"scores = torch.zeros(4, {classes})                          # {classes} classes: 0 to {classes - 1}",
            f"F.cross_entropy(scores, torch.tensor([0, 1, {target}, 2]))",
            raises=f"IndexError: Target {target} is out of bounds.",
        ),
        (
            "Map the labels to 0 ... C-1 (`labels - 1`, a dictionary), or give the last layer `labels.max() + 1` outputs.",
            "Pass `ignore_index=` for a label that is to be left out.",
        ),
        running(
            f"scores = torch.zeros(4, {classes})",
            f"print(F.cross_entropy(scores, torch.tensor([0, 1, {target}, 2]), ignore_index={target}).isfinite().item())",
            prints="True",
        ),
        falsehoods=(
            Falsehood(
                "The targets must be one-hot.",
                "Class numbers are what it takes (int64, one per sample); floats of the scores' shape are read as probabilities.",
                running(
                    "scores, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 2])",
                    "print(torch.allclose(F.cross_entropy(scores, labels), F.cross_entropy(scores, F.one_hot(labels, 3).float())))",
                    prints="True",
                ),
            ),
        ),
    )


@reads(
    r"Expected input batch_size \((?P<input>\d+)\) to match target batch_size \((?P<target>\d+)\)",
    example="ValueError: Expected input batch_size (4) to match target batch_size (5).",
    fragments=(r"expected input batch_size",),
)
def loss_batch_sizes(found: Found) -> Reading:
    scores, target = found.int("input"), found.int("target")
    story = []
    large, small = max(scores, target), min(scores, target)
    if small and large % small == 0 and large != small:
        story.append(
            f"{large} is {large // small} x {small}: one of the two was flattened over {large // small} positions (time, pixels) and the other not, "
            "or a `view(-1, n)` with the wrong n moved elements from the features into the batch."
        )
    return Reading(
        f"{scores} predictions, {target} targets",
        f"The loss compares row by row: the scores have {scores} rows (dimension 0), the targets {target}.",
        (
            *story,
            "A `view(-1, n)` before the last layer has the wrong n, which changes the number of rows instead of raising.",
            "Sequence models: targets are longer or shorter than the outputs (shifted by one, with and without [CLS]).",
            "One of them comes from another batch (the last, partial one).",
        ),
        raising(
            f"F.cross_entropy(torch.zeros({scores}, 3), torch.zeros({target}, dtype=torch.long))",
            raises=f"ValueError: Expected input batch_size ({scores}) to match target batch_size ({target}).",
        ),
        ("Keep the batch: `x.flatten(1)` or `x.view(x.shape[0], -1)`; for sequences flatten both: `scores.flatten(0, 1)`, `targets.flatten()`.",),
    )


@reads(
    r"Expected target size \[(?P<want>[\d, ]*)\], got \[(?P<got>[\d, ]*)\]",
    example="RuntimeError: Expected target size [4, 3], got [4, 7]",
    fragments=(r"expected target size",),
)
def class_axis(found: Found) -> Reading:
    want, got = found.ints("want"), found.ints("got")
    scores = (want[0], got[1], want[1]) if len(want) == 2 and len(got) == 2 else ()
    return Reading(
        f"the scores ask for targets of {shape(want)}, the targets are {shape(got)}",
        "For scores of more than two dimensions the classes are dimension 1: [batch, classes, time]. What is left of the scores without "
        f"dimension 1 is {shape(want)}; the targets are {shape(got)}.",
        (
            "The classes are last ([batch, time, classes], as linear layers give them)"
            + (f": scores {shape(scores)} would give exactly this message." if scores else "."),
            "Targets and scores have different lengths.",
        ),
        raising(
            f"scores = torch.zeros({call(scores)})                       # [batch, time, classes]",
            f"F.cross_entropy(scores, torch.zeros({call(got)}, dtype=torch.long))",
            raises=f"RuntimeError: Expected target size {shape(want)}, got {shape(got)}",
        )
        if scores
        else None,
        ("Move the classes: `F.cross_entropy(scores.transpose(1, 2), targets)`, or flatten: `scores.flatten(0, 1)`, `targets.flatten()`.",),
        running(
            f"scores, targets = torch.zeros({call(scores)}), torch.zeros({call(got)}, dtype=torch.long)",
            "print(F.cross_entropy(scores.transpose(1, 2), targets).isfinite().item())",
            prints="True",
        )
        if scores
        else None,
        falsehoods=(
            Falsehood(
                "`view` can move the class axis.",
                "`scores.view(batch, classes, time)` has the right shape and mixes the scores up; `transpose` moves the axis.",
                running(
                    "scores = torch.arange(12.0).reshape(1, 4, 3)              # [batch, time, classes]",
                    "print(torch.equal(scores.view(1, 3, 4), scores.transpose(1, 2)))",
                    prints="False",
                ),
            ),
        ),
    )


@reads(
    r"Expected floating point type for target with class probabilities, got (?P<got>\w+)",
    example="RuntimeError: Expected floating point type for target with class probabilities, got Long",
)
def whole_probabilities(found: Found) -> Reading:
    got = dtype(found["got"])
    return Reading(
        f"targets of the scores' own shape, and of dtype {got}",
        f"Targets of exactly the scores' shape are read as probabilities of the classes, which are floats; these are {got}. Class numbers have no class dimension.",
        ("One-hot labels: `F.one_hot` gives int64.", "Class numbers in a shape that happens to be that of the scores."),
        raising(f"F.cross_entropy(torch.zeros(4, 3), torch.zeros(4, 3, dtype={got}))", raises=found.match[0]),
        ("One-hot: `targets.float()`, or `targets.argmax(1)` for class numbers.",),
    )


@reads(
    r"expected target dtype to be Long or Byte, but got (?P<got>\w+)",
    r"expected scalar type Long but found (?P<found>\w+)",
    r"Expected object of scalar type Long but got scalar type (?P<found>\w+) for argument #2 'target'",
    example="RuntimeError: expected target dtype to be Long or Byte, but got Float",
    fragments=(r"expected target dtype",),
)
def target_dtype(found: Found) -> Reading:
    got = found["got"] if found.has("got") else found["found"]
    old = found.has("found")
    return Reading(
        f"targets of dtype {dtype(got)} where class numbers are expected",
        f"Class numbers must be int64 (`torch.long`); these are {dtype(got)}."
        + (" The message may also come from another operation that takes whole numbers (an index, a length); look at the line." if old else ""),
        (
            "The labels come from numpy or pandas as float or int32, or from `torch.Tensor(labels)`, which makes float32.",
            "Targets for another loss: `mse_loss` and `bce` take floats.",
        ),
        raising(
            f"F.cross_entropy(torch.zeros(4, 3), torch.zeros(4, dtype={dtype(got)}))",
            raises=f"RuntimeError: expected target dtype to be Long or Byte, but got {got}",
            says="In the current words of `cross_entropy` this raises:" if old else "",
        ),
        ("`targets.long()`, or `dtype=torch.long` where they are made.",),
    )


@reads(
    r"(?:0D or 1D target tensor expected, )?multi-target not supported",
    r"only batches of spatial targets supported \(3D tensors\) but got targets of (?:dimension|size)[: ]*\[?(?P<dims>\d[\d, ]*)\]?",
    example="RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
    fragments=(r"multi-target not supported",),
)
def target_dims(found: Found) -> Reading:
    spatial = found.has("dims")
    return Reading(
        "the targets have a dimension too many",
        "For scores [N, C, H, W] the targets are class numbers [N, H, W], without a channel dimension." if spatial else
        "For scores [N, C] the targets are N class numbers (1 dimension), or probabilities of exactly the scores' shape.",
        (
            "Mask images were loaded with a channel dimension [N, 1, H, W]: `targets.squeeze(1)`." if spatial else
            "Labels of shape [N, 1] (from a data frame, a column vector): `targets.squeeze(1)`.",
            "One-hot targets: use `targets.argmax(1)`, or floats of exactly the scores' shape.",
        ),
        raising(
            "F.cross_entropy(torch.zeros(4, 3, 8, 8), torch.zeros(4, 1, 8, 8, dtype=torch.long))" if spatial else
            "F.cross_entropy(torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.long))",
            raises="RuntimeError: only batches of spatial targets" if spatial else "RuntimeError: 0D or 1D target tensor expected",
        ),
        ("`targets.squeeze(1)`; `squeeze()` without a dimension would also drop a batch of one.",),
        running(
            "print(F.cross_entropy(torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.long).squeeze(1)).isfinite().item())",
            prints="True",
        ),
    )  # fmt: skip


@reads(
    r"weight tensor should be defined either for all (?P<classes>\d+) classes or no classes but got weight tensor of shape: \[(?P<weight>[\d, ]*)\]",
    example="RuntimeError: weight tensor should be defined either for all 3 classes or no classes but got weight tensor of shape: [5]",
)
def class_weights(found: Found) -> Reading:
    classes, weight = found.int("classes"), found.ints("weight")
    return Reading(
        f"class weights of shape {shape(weight)} for {classes} classes",
        f"One weight per class is needed: {classes}, the size of dimension 1 of the scores.",
        ("The class axis is not dimension 1.", "Weights were computed for another set of classes."),
        raising(
            f"F.cross_entropy(torch.zeros(4, {classes}), torch.zeros(4, dtype=torch.long), weight=torch.ones({call(weight)}))",
            raises=f"weight tensor should be defined either for all {classes} classes",
        ),
        (f"Pass {classes} weights, or bring the classes to dimension 1.",),
    )


@reads(
    r"Target size \(torch\.Size\(\[(?P<target>[\d, ]*)\]\)\) must be the same as input size \(torch\.Size\(\[(?P<input>[\d, ]*)\]\)\)",
    r"Using a target size \(torch\.Size\(\[(?P<target2>[\d, ]*)\]\)\) that is different to the input size \(torch\.Size\(\[(?P<input2>[\d, ]*)\]\)\)",
    example="ValueError: Target size (torch.Size([4])) must be the same as input size (torch.Size([4, 1]))",
    fragments=(r"target size .{0,30}must be the same as input size", r"using a target size"),
)
def target_size(found: Found) -> Reading:
    logits = found.has("target")
    target, size = (found.ints("target"), found.ints("input")) if logits else (found.ints("target2"), found.ints("input2"))
    if "likely lead to incorrect results" in found.text:
        return _broadcast_loss(target, size)
    name = "binary_cross_entropy_with_logits" if logits else "binary_cross_entropy"
    column = size == (*target, 1)
    return Reading(
        f"targets of {shape(target)} for predictions of {shape(size)}",
        "This loss compares element by element and, unlike most operations, does not broadcast: "
        f"[n, 1] against [n] would silently make an n x n table. Predictions are {shape(size)}, targets {shape(target)}.",
        (
            "The last layer gives one column [N, 1] and the labels are a vector [N]." if column else "Predictions and targets come from different places or batches.",
            "Class numbers were given where one value per class is needed: `F.one_hot(labels, C).float()`.",
        ),
        raising(
            f"F.{name}(torch.zeros({call(size)}), torch.zeros({call(target)}))",
            raises=f"Size({shape(target)})",
        ),
        ("`predictions.squeeze(1)` or `targets.unsqueeze(1)`, whichever is meant." if column else "Give both the same shape.",),
        falsehoods=(
            Falsehood(
                "`mse_loss` would catch it too.",
                "`mse_loss` warns and broadcasts: the loss is then of all pairs, a wrong number.",
                running(
                    "p, t = torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 1.0])",
                    "print(F.mse_loss(p, t).item(), F.mse_loss(p.squeeze(1), t).item())",
                    prints="0.5 0.0",
                ),
            ),
        ),
    )  # fmt: skip


def _broadcast_loss(target: tuple[int, ...], size: tuple[int, ...]) -> Reading:
    """The same words as a warning: `mse_loss` and its kin go on, and broadcast."""
    return Reading(
        f"predictions of {shape(size)} and targets of {shape(target)} are broadcast: the loss is a wrong number",
        f"This is a warning: `mse_loss`, `l1_loss` and `smooth_l1_loss` go on and broadcast {shape(size)} against {shape(target)}. [n, 1] against [n] becomes an n x n table of all pairs, "
        "and the model learns the mean.",
        ("The last layer gives one column [N, 1] and the targets are a vector [N].", "Predictions and targets come from different batches."),
        running(
            "p, t = torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 1.0])          # perfect predictions",
            "print(F.mse_loss(p, t).item(), F.mse_loss(p.squeeze(1), t).item())",
            prints="0.5 0.0",
            says="Perfect predictions get a loss of 0.5; this prints 0.5 0.0:",
        ),
        ("`predictions.squeeze(1)` or `targets.unsqueeze(1)`, whichever is meant.",),
        rule="silent-broadcast",
    )


@reads(
    r"all elements of (?P<which>input|target) should be between 0 and 1",
    example="RuntimeError: all elements of input should be between 0 and 1",
)
def probabilities(found: Found) -> Reading:
    which = found["which"]
    return Reading(
        f"`binary_cross_entropy` got {'predictions' if which == 'input' else 'targets'} outside 0 to 1",
        "It takes probabilities and targets between 0 and 1." + (" NaN counts as outside, too." if which == "input" else ""),
        (
            ("Raw scores (logits) were passed: the sigmoid is missing.", "NaN: the model has diverged, or an input was NaN.")
            if which == "input"
            else ("Labels 1 and 2, or -1 and 1, instead of 0 and 1.", "Class numbers of more than two classes; pixel values 0 to 255.")
        ),
        raising(
            "F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0]))" if which == "input" else
            "F.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([2.0]))",
            raises=f"RuntimeError: all elements of {which} should be between 0 and 1",
        ),
        ("`F.binary_cross_entropy_with_logits(scores, targets)` on raw scores: more exact than sigmoid and then the loss."
         if which == "input" else "Bring the targets to 0 and 1.",),
        falsehoods=(
            Falsehood(
                "Clamping the predictions to 0 ... 1 is the fix.",
                "It gives no gradient to every score that was clamped: those samples stop learning.",
                running(
                    "scores = torch.tensor([1.5], requires_grad=True)",
                    "F.binary_cross_entropy(scores.clamp(0, 1), torch.tensor([0.0])).backward()",
                    "print(scores.grad.item())",
                    prints="0.0",
                ),
            ),
        ) if which == "input" else (),
    )  # fmt: skip


@reads(
    r"Expected input_lengths to have value at most (?P<most>\d+), but got value (?P<got>\d+)",
    r"Expected tensor to have size at least (?P<least>\d+) at dimension 1, but got size (?P<size>\d+) for argument #2 'targets'",
    r"(?P<which>input|target)_lengths must be of size batch_size",
    example="RuntimeError: Expected input_lengths to have value at most 5, but got value 6 (while checking arguments for "
    "ctc_loss_allocate_outputs)",
)
def ctc_lengths(found: Found) -> Reading:
    if found.has("most"):
        most, got = found.int("most"), found.int("got")
        what = f"The scores have {most} time steps (dimension 0), and some input length says {got}."
        lines = (f"scores = torch.zeros({most}, 1, 4).log_softmax(-1)               # [time, batch, classes]",
                 f"F.ctc_loss(scores, torch.ones(1, 2, dtype=torch.long), torch.tensor([{got}]), torch.tensor([2]))")  # fmt: skip
    elif found.has("least"):
        what = f"Some target length says {found['least']}, and the targets are padded to {found['size']} only."
        lines = ("scores = torch.zeros(20, 1, 4).log_softmax(-1)               # [time, batch, classes]",
                 f"F.ctc_loss(scores, torch.ones(1, {found['size']}, dtype=torch.long), torch.tensor([20]), torch.tensor([{found['least']}]))")  # fmt: skip
    else:
        what = f"`{found['which']}_lengths` needs one entry per sample."
        one, two = ("torch.tensor([5])", "torch.tensor([3, 3])") if found["which"] == "input" else ("torch.tensor([5, 5])", "torch.tensor([3])")
        lines = ("scores = torch.zeros(5, 2, 4).log_softmax(-1)                # [time, batch, classes]",
                 f"F.ctc_loss(scores, torch.ones(2, 3, dtype=torch.long), {one}, {two})")  # fmt: skip
    return Reading(
        "the lengths given to the CTC loss do not fit",
        what,
        (
            "Lengths count samples of the raw signal, not time steps after the model's strides and poolings.",
            "The scores are [batch, time, classes]; CTC wants [time, batch, classes]: `transpose(0, 1)`.",
            "Lengths were taken before truncation or padding.",
        ),
        raising(*lines, raises="RuntimeError: " + found.match[0]),
        ("Compute the lengths after the model (`lengths // stride`), and pass the scores as [time, batch, classes].",),
    )


@reads(
    r"size mismatch \(got input: \[(?P<input>[\d, ]*)\] ?, target: \[(?P<target>[\d, ]*)\]",
    example="RuntimeError: size mismatch (got input: [4, 3, 8, 8] , target: [4, 9, 8]",
)
def spatial_target_size(found: Found) -> Reading:
    size, target = found.ints("input"), found.ints("target")
    want = (size[0], *size[2:])
    return Reading(
        f"scores of {shape(size)} and targets of {shape(target)}",
        f"Scores [N, C, ...] need class numbers of their shape without the classes: {shape(want)}; the targets are {shape(target)}.",
        ("Image and mask were resized or cropped differently.", "The network's output is smaller than its input: upsample it, or shrink the mask (nearest neighbour).",
         "Height and width are swapped."),
        raising(
            f"F.cross_entropy(torch.zeros({call(size)}), torch.zeros({call(target)}, dtype=torch.long))",
            raises=found.match[0],
        ),
        ("`F.interpolate(scores, size=targets.shape[-2:])`, or make the mask fit.",),
    )  # fmt: skip
