"""Inputs that a convolution or pooling layer does not take."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_tensor, of_terms
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import argument_fact, expr, failed, inferred, line_of, made_words, plural, seen, shape


class ConvShape(CrashRule):
    """A convolution or pooling layer gets an input with other channels, dimensions or a smaller size than it takes.

    What happened
    -------------
    torch's image layers read inputs as [batch, channels, height, width]: the channels at dimension 1 must be those the
    layer was built for, and the image must not be smaller than the kernel.

    Why
    ---
    Typical: images with the channels last ([batch, height, width, channels], as numpy and PIL have them); grey images
    for a layer built for RGB; a missing batch dimension; the layer before has another number of outputs; too many
    poolings for a small image.

    Example
    -------
    This raises "expected input[2, 32, 32, 3] to have 3 channels, but got 32 channels instead":

        import torch

        layer = torch.nn.Conv2d(3, 8, kernel_size=3)
        images = torch.randn(2, 32, 32, 3)      # channels last
        layer(images)

    Fix
    ---
    `images.permute(0, 3, 1, 2)` for channels last; `in_channels` equal to the outputs of the layer before; larger
    images, smaller kernels, padding or fewer poolings.

    Common false explanations
    -------------------------
    "`memory_format=torch.channels_last` changes the order of dimensions." It changes only how the memory is laid out.
    This prints the same shape twice:

        import torch

        x = torch.randn(2, 3, 8, 8)
        print(x.shape, x.to(memory_format=torch.channels_last).shape)
    """

    name = "conv-shape"
    messages = (
        r"expected input\[[^\]]*\] to have \d+ channels",
        r"Expected \dD \(unbatched\) or \dD \(batched\) input to",
        r"Kernel size can't be greater than actual input size",
        r"Output size is too small",
        r"expected (stride|padding|dilation|output_padding)",
        r"\dD or \dD \(batch mode\) tensor (expected|with optional)",
        r"pool.*(expected|Expected)",
        r"non-empty 3D or 4D",
        r"pad should be (at most|smaller)",
        r"maximum size for tensor at dimension \d+ is \d+ but size is \d+",
        r"Padding size should be less than the corresponding input dimension",
        r"Given (groups|transposed)=",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        given = operation.operand("input", "self")
        weight = operation.operand("weight")
        layer = f"`{operation.module}`" if operation.module else f"`{operation.name}`"
        made = (weight.made if weight is not None and weight.made is not None else None) or operation.module_made
        channels = re.search(r"expected input\[([\d, ]*)\] to have (\d+) channels, but got (\d+) channels", message)
        called = given.called if given is not None else "the input"
        facts = []
        words = made_words(made, operation)
        if words:
            facts.append(seen(f"{layer} was made by {words}." if operation.module_type else f"Its weight was made by {words}."))
        if channels:
            want, have = int(channels[2]), int(channels[3])
            sizes = [int(size) for size in channels[1].split(",")]
            spatial = len(weight.shape) - 2 if weight is not None else len(sizes) - 2
            axis = len(sizes) - spatial - 1
            axis = 1 if given is None or len(given.shape) != len(sizes) else axis
            fixes = [f"Build the layer for {have} channels, or give it an input with {want}."]
            formed = [of_axis(given, axis), (_maker(operation, weight, want) or made, f"the layer is made for {plural(want, 'channel')} here")]
            if sizes[-1] == want and len(sizes) >= 3:
                order = [0, len(sizes) - 1, *range(1, len(sizes) - 1)] if len(sizes) > spatial + 1 else [len(sizes) - 1, *range(len(sizes) - 1)]
                facts.append(inferred(f"The last dimension has size {want}: the channels come last here; torch reads [batch, channels, …]."))
                name = expr(given, "x") if given is not None else "x"
                fixes = [f"Move the channels: `{name}.permute({', '.join(map(str, order))})`."]
                formed = [(given.formed, f"{called} {shape(sizes)} comes from here")] if given is not None and given.formed is not None else [of_axis(given, axis)]  # the sizes are right
            parts, sums = of_terms(operation, given, axis)
            return report(
                self.name, operation, title=f"{called} has {plural(have, 'channel')} (dimension {axis}); {layer} takes {want}", label=f"{plural(have, 'channel')} at dimension {axis}; {want} {'is' if want == 1 else 'are'} taken",
                lead=given, why=f"{layer} {'was built for' if operation.module_type else 'takes, by its weight,'} {plural(want, 'input channel')} and reads them at dimension {axis}, where {called} {shape(sizes)} has {have}.",
                creates=[*formed, *parts], facts=[*sums, *facts], fixes=fixes,
            )  # fmt: skip
        creates: list[tuple[Made | None, str]] = []
        if "Kernel size" in message or "too small" in message:
            creates = [*(of_axis(given, axis) for axis in (-2, -1)), (operation.module_made, "the layer is made here")]
            if given is not None and operation.module_type:
                creates.append((given.input_for(-1), "its size is computed from this input"))
            kernel = operation.argument("kernel_size")
            if kernel is not None and kernel.value:
                facts.append(seen(f"{argument_fact(kernel)}."))
            return report(
                self.name, operation, title=f"{called} {shape(given.shape) if given else ''} is too small for {layer}", label="smaller than the kernel", lead=given,
                why=f"Nothing is left after this layer. torch says: {message}", creates=creates, facts=facts,
                fixes=["Use larger inputs, padding, a smaller kernel, or fewer poolings and strides before it."],
            )  # fmt: skip
        window = re.search(r"maximum size for tensor at dimension (\d+) is (\d+) but size is (\d+)", message)
        if window and given is not None:
            size = operation.argument("size")
            return report(
                self.name, operation, title=f"{called} has {plural(int(window[2]), 'value')} at dimension {window[1]}, too few for windows of {window[3]}",
                label=f"{plural(int(window[2]), 'value')}; windows of {window[3]}", lead=given, why="`unfold` takes windows of whole size: the dimension must hold at least one.",
                creates=[*([(size.made, f"{size.source} = {size.value} comes from here")] if size is not None else []), of_axis(given, int(window[1]))],
                facts=[*facts, *([seen(f"{argument_fact(size)}.")] if size is not None and size.value else [])],
                fixes=["Use smaller windows, pad the tensor before, or leave out inputs that are too short."],
            )  # fmt: skip
        border = re.search(r"Padding size should be less than the corresponding input dimension, but got: padding \((\d+), (\d+)\) at dimension (\d+)", message)
        if border and given is not None:
            size, axis = given.shape[int(border[3])], int(border[3])
            pad = operation.argument("pad", "padding")
            return report(
                self.name, operation, title=f"{called} has {size} values at dimension {axis}, too few to be padded by {border[1]} and {border[2]} of its own",
                label=f"{size} values; padding by {border[1]} and {border[2]}", lead=given,
                why="Reflection takes the values of the border from the tensor itself, without the outermost one: the padding must be smaller than the dimension.",
                creates=[of_axis(given, axis), *([(pad.made, "the padding comes from here")] if pad is not None else [])],
                facts=[*facts, *([seen(f"{argument_fact(pad)}.")] if pad is not None and pad.value else [])],
                fixes=["Pad by less, pad with a constant (`mode='constant'`) or `mode='replicate'`, or leave out inputs that are too short."],
            )  # fmt: skip
        if given is not None and re.search(r"\dD", message):
            facts.append(seen(f"{called} has {len(given.shape)} dimensions."))
        return report(
            self.name, operation, title=f"{layer} does not take {called}{f' of shape {shape(given.shape)}' if given else ''}", label="wrong number of dimensions or sizes",
            lead=given, why=f"torch says: {message}", creates=[of_tensor(given)], facts=facts, fixes=_rank_fix(given),
        )  # fmt: skip


def _maker(operation: FailedOperation, weight: Operand | None, channels: int) -> Made | None:
    """Where the weight has its input channels from; with groups it has only some of them itself."""
    of_layer = next((origin.made for origin in operation.module_sizes if origin.size == channels), None)
    return of_layer or next((origin.made for origin in weight.sizes if origin.size == channels), None) if weight is not None else of_layer


def _rank_fix(given: Operand | None) -> list[str]:
    if given is None:
        return []
    name = expr(given, "x")
    return [f"Layers read [batch, channels, …]: add what is missing, e.g. `{name}.unsqueeze(0)` for the batch or `.unsqueeze(1)` for one channel."]
