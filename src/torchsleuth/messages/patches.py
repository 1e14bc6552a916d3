"""Messages of operations that cut images into patches or windows and put them together: pixel_shuffle, pixel_unshuffle, fold, unfold."""

from __future__ import annotations

import math

from torchsleuth.messages import Found, Reading, call, raising, reads, running


@reads(
    r"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input\.size\(-3\)=(?P<channels>\d+) "
    r"is not divisible by (?P<square>\d+)",
    example="RuntimeError: pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
    "input.size(-3)=40 is not divisible by 16",
    fragments=(r"pixel_shuffle expects", r"divisible by the square of upscale_factor"),
)
def pixel_shuffle_channels(found: Found) -> Reading:
    channels, square = found.int("channels"), found.int("square")
    factor = math.isqrt(square)
    return Reading(
        f"{channels} channels cannot be spread over {factor} × {factor} pixels",
        f"pixel_shuffle makes {factor} × {factor} pixels of {square} channels, so the channels (the third dimension from the end) must be a multiple of "
        f"{square}: upscale_factor squared. There are {channels}.",
        (
            f"The convolution before has `channels * {factor}` outputs and not `channels * {factor} ** 2`.",
            "The upscale factor was changed, the layer before it not.",
            "The channels are in another dimension: torch reads [batch, channels, height, width].",
        ),
        raising(f"torch.nn.functional.pixel_shuffle(torch.zeros(1, {channels}, 8, 8), {factor})", raises=f"input.size(-3)={channels} is not divisible by {square}"),
        (f"Give the layer before `channels * {factor} ** 2` outputs: a multiple of {square}.",),
        running(f"print(torch.nn.functional.pixel_shuffle(torch.zeros(1, {square} * 10, 8, 8), {factor}).shape)", prints=f"[1, 10, {8 * factor}, {8 * factor}]"),
    )


@reads(
    r"pixel_unshuffle expects (?P<which>height|width) to be divisible by downscale_factor, but input\.size\((?P<axis>-\d)\)=(?P<size>\d+) is not divisible by (?P<factor>\d+)",
    example="RuntimeError: pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=9 is not divisible by 2",
    fragments=(r"pixel_unshuffle expects",),
)
def pixel_unshuffle_size(found: Found) -> Reading:
    size, factor, height = found.int("size"), found.int("factor"), found.match["which"] == "height"
    shape = (1, 1, size, factor) if height else (1, 1, factor, size)
    return Reading(
        f"an image of {found.match['which']} {size} has no whole number of {factor} × {factor} patches",
        f"pixel_unshuffle makes channels of patches of {factor} × {factor} pixels: height and width must be multiples of {factor}, and the {found.match['which']} is {size}.",
        ("The image was not resized or cropped to a multiple of the factor.",),
        raising(f"torch.nn.functional.pixel_unshuffle(torch.zeros({call(shape)}), {factor})", raises=f"={size} is not divisible by {factor}"),
        (f"Crop or pad the image to a multiple of {factor}.",),
    )


@reads(
    r"Given output_size=\((?P<out>\d+, \d+)\), kernel_size=\((?P<kernel>\d+, \d+)\), dilation=\((?P<dilation>\d+, \d+)\), padding=\((?P<padding>\d+, \d+)\), "
    r"stride=\((?P<stride>\d+, \d+)\), expected size of input's dimension (?P<axis>\d) to match the calculated number of sliding blocks "
    r"(?P<rows>\d+) \* (?P<columns>\d+) = (?P<want>\d+), but got input\.size\(\d\)=(?P<got>\d+)",
    example="RuntimeError: Given output_size=(32, 32), kernel_size=(8, 8), dilation=(1, 1), padding=(0, 0), stride=(8, 8), expected size of input's "
    "dimension 2 to match the calculated number of sliding blocks 4 * 4 = 16, but got input.size(2)=49.",
    fragments=(r"calculated number of sliding blocks",),
)
def fold_blocks(found: Found) -> Reading:
    want, got = found.int("want"), found.int("got")
    sizes = {name: found.ints(name) for name in ("out", "kernel", "dilation", "padding", "stride")}
    lead = "1, " if found.int("axis") == 2 else ""
    options = "".join(f", {name}={sizes[name]}" for name in ("dilation", "padding", "stride"))
    return Reading(
        f"fold needs {want} patches and got {got}",
        f"An image of {sizes['out'][0]} × {sizes['out'][1]} has {found.match['rows']} × {found.match['columns']} = {want} patches of this kernel, stride, padding and dilation; "
        f"the input holds {got} (dimension {found.match['axis']}).",
        (
            "`unfold` was called with another stride, padding or kernel than `fold`.",
            "The output size is not that of the image that was unfolded.",
            "Patches and values are swapped: fold takes [batch, channels × kernel values, patches].",
        ),
        raising(
            f"x = torch.zeros({lead}{math.prod(sizes['kernel'])}, {got})",
            f"torch.nn.functional.fold(x, {sizes['out']}, {sizes['kernel']}{options})",
            raises=f"sliding blocks {found.match['rows']} * {found.match['columns']} = {want}, but got input.size({found.match['axis']})={got}",
        ),
        ("Give `fold` the kernel, stride, padding and dilation of the `unfold` that made the patches.",),
    )


@reads(
    r"maximum size for tensor at dimension (?P<dim>\d+) is (?P<have>\d+) but size is (?P<size>\d+)",
    example="RuntimeError: maximum size for tensor at dimension 1 is 5 but size is 9",
    fragments=(r"maximum size for tensor at dimension",),
)
def windows_too_wide(found: Found) -> Reading:
    dim, have, size = found.int("dim"), found.int("have"), found.int("size")
    return Reading(
        f"windows of {size} do not fit into a dimension of {have}",
        f"`x.unfold(dimension, size, step)` takes windows of whole size: dimension {dim} holds {have}, a window {size}.",
        ("The input is shorter than one window: a short recording, a last partial piece.", "Another dimension was meant."),
        raising(f"torch.zeros({call((2,) * dim + (have,))}).unfold({dim}, {size}, 1)", raises=f"at dimension {dim} is {have} but size is {size}"),
        (f"Pad the input to at least {size}, use smaller windows, or leave out inputs that are too short.",),
    )


@reads(
    r"Given input with spatial size \((?P<size>\d+, \d+)\), kernel_size=\((?P<kernel>\d+, \d+)\), dilation=\((?P<dilation>\d+, \d+)\), padding=\((?P<padding>\d+, \d+)\), "
    r"calculated shape of the array of sliding blocks as \((?P<blocks>-?\d+, -?\d+)\), but its components must be at least one",
    example="RuntimeError: Given input with spatial size (5, 5), kernel_size=(7, 7), dilation=(1, 1), padding=(0, 0), calculated shape of the array of "
    "sliding blocks as (-1, -1), but its components must be at least one.",
    fragments=(r"calculated shape of the array of sliding blocks",),
)
def patches_too_large(found: Found) -> Reading:
    size, kernel, padding = found.ints("size"), found.ints("kernel"), found.ints("padding")
    return Reading(
        f"an image of {size[0]} × {size[1]} holds no patch of {kernel[0]} × {kernel[1]}",
        f"`F.unfold` cuts whole patches: the image, with {padding[0]} and {padding[1]} of padding on each side, must be at least as large as the kernel (times its dilation).",
        ("The image is smaller than meant: it was pooled or cropped before.", "The channels come last: torch reads [batch, channels, height, width]."),
        raising(
            f"torch.nn.functional.unfold(torch.zeros(1, 1, {call(size)}), {kernel}, dilation={found.ints('dilation')}, padding={padding})",
            raises="but its components must be at least one",
        ),
        ("Use larger images, padding, or a smaller kernel.",),
    )
